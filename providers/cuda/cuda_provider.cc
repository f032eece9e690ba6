// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/cuda_provider.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "providers/cuda/collectives/local_rank.h"
#include "providers/cuda/collectives/nccl.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/core/registrations.h"
#include "providers/cuda/core/side_stream.h"
#include "providers/cuda/gemm/cublaslt.h"
#include "providers/cuda/library/library_name.h"
#include "providers/cuda/profiling/cupti_trace.h"
#include "providers/cuda/profiling/nvtx_ranges.h"
#include "providers/kernel.h"

namespace onnx_fp8 {
namespace cuda {
void RegisterAll(KernelRegistry& r);  // cmake/registers.cmake writes it
}

namespace {

// Takes the GPU of this process. Errors: no device that can run the kernels.
void ChooseDevice() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  const char* found = cudaGetErrorString(error);
  // So the runtime calls a machine without a driver.
  if (error == cudaErrorInsufficientDriver) {
    found = "no driver, or one older than CUDA 12";
  } else if (error == cudaErrorNoDevice || error == cudaSuccess) {
    found = "no GPU";
  }
  Check(error == cudaSuccess && count > 0,
        "[provider cuda] expected an NVIDIA GPU and its driver, got ", found,
        "; the provider cpu runs everywhere");
  cuda::UseOwnDevice(std::getenv);
  int device = 0, major = 0, minor = 0;
  ONNX_FP8_CUDA(cudaGetDevice(&device));
  ONNX_FP8_CUDA(cudaDeviceGetAttribute(
      &major, cudaDevAttrComputeCapabilityMajor, device));
  ONNX_FP8_CUDA(cudaDeviceGetAttribute(
      &minor, cudaDevAttrComputeCapabilityMinor, device));
  Check(major >= 9,
        "[provider cuda] expected compute capability 9.0 (Hopper) or later, "
        "got ",
        major, ".", minor, "; the provider cpu runs everywhere");
}

// 13000 is version 13.0.
std::string VersionText(int version) {
  return Concat(version / 1000, ".", version % 1000 / 10);
}

// The library's name and version, or that there is none.
std::string CublasLtText() {
  try {
    size_t version = cuda::CublasLtFunctions().GetVersion();
    return Concat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".",
                  version % 100);
  } catch (const Error&) {
    return "no cuBLASLt";
  }
}

std::string LibraryText() {
  std::string library = cuda::LibraryName();
  return library.empty() ? "our own kernels" : library;
}

// The nodes of the graph that the stream captures. REQUIRES: it captures.
WorkCounts CapturedWork(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  ONNX_FP8_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph,
                                         nullptr, nullptr, nullptr));
#else
  ONNX_FP8_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph,
                                         nullptr, nullptr));
#endif
  size_t count = 0;
  ONNX_FP8_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  ONNX_FP8_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  WorkCounts counts;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    ONNX_FP8_CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) ++counts[WorkKind::kKernel];
    if (type == cudaGraphNodeTypeMemcpy) ++counts[WorkKind::kCopy];
    if (type == cudaGraphNodeTypeMemset) ++counts[WorkKind::kClear];
  }
  return counts;
}

// A CUDA graph: the host starts a whole step by one call.
class CudaGraph : public Recording {
 public:
  // Errors: as `run`'s; the runtime's.
  CudaGraph(cudaStream_t stream, const std::function<void()>& run)
      : stream_(stream) {
    ONNX_FP8_CUDA(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      run();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    ONNX_FP8_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    CheckCuda(error, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }

  void Replay() override { ONNX_FP8_CUDA(cudaGraphLaunch(exec_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
};

class CudaProvider : public ExecutionProvider {
 public:
  CudaProvider(const ProviderOptions& options, ActivityTrace* activities)
      : activities_(activities),
        queue_(std::make_shared<cuda::Queue>(options)) {}

  std::string Name() const override { return "cuda"; }

  ProviderInfo Describe() const override {
    int device = 0, driver = 0, runtime = 0;
    cudaDeviceProp facts;
    ONNX_FP8_CUDA(cudaGetDevice(&device));
    ONNX_FP8_CUDA(cudaGetDeviceProperties(&facts, device));
    ONNX_FP8_CUDA(cudaDriverGetVersion(&driver));
    ONNX_FP8_CUDA(cudaRuntimeGetVersion(&runtime));
    return {.isa = Concat(facts.name, " (sm_", facts.major, facts.minor,
                          "), driver of CUDA ", VersionText(driver),
                          ", runtime ", VersionText(runtime)),
            .gemm = Concat(CublasLtText(), ", attention and convolutions by ",
                           LibraryText(), ", ", cuda::NcclText()),
            .fast_bfloat16 = true};
  }

  const KernelRegistry& Kernels() const override { return CudaKernels(); }
  Device device() const override { return Device::kProvider; }
  void* queue() override { return queue_.get(); }

  // A pool keeps freed memory until somebody waits.
  std::optional<DeviceMemory> Memory() override {
    DeviceMemory memory;
    ONNX_FP8_CUDA(cudaStreamSynchronize(queue_->stream()));
    ONNX_FP8_CUDA(cudaMemGetInfo(&memory.free, &memory.total));
    return memory;
  }

  // Memory comes and goes in the order of the stream: work that was queued
  // before it is freed may use it.
  std::shared_ptr<void> Allocate(size_t bytes) override {
    void* data = nullptr;
    cudaError_t error =
        cudaMallocAsync(&data, std::max<size_t>(bytes, 1), queue_->stream());
    if (error == cudaErrorMemoryAllocation) FailOutOfMemory(bytes);
    CheckCuda(error, "cudaMallocAsync");
    return {data, [queue = queue_](void* memory) {
              cudaFreeAsync(memory, queue->stream());
            }};
  }

  // Pinned memory has the same address for the GPU (unified addressing).
  std::shared_ptr<void> AllocateOnHost(size_t bytes) override {
    void* data = nullptr;
    cudaError_t error =
        cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocMapped);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      Fail("out of pinned memory: the host can't give the GPU ", bytes,
           " bytes more of its memory");
    }
    CheckCuda(error, "cudaHostAlloc");
    return {data, [queue = queue_](void* memory) {
              cudaStreamSynchronize(queue->stream());
              cudaFreeHost(memory);
            }};
  }

  void CopyIn(const Tensor& host, Tensor& ours) override {
    host.RequireHost();
    queue_->staging().ToDevice(host.raw(), ours.raw(), host.bytes());
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    host.RequireHost();
    queue_->staging().ToHost(ours.raw(), host.raw(), ours.bytes());
    Synchronize();
  }
  void Copy(const Tensor& from, Tensor& to) override {
    if (from.bytes() == 0) return;
    ONNX_FP8_CUDA(cudaMemcpyAsync(to.raw(), from.raw(), from.bytes(),
                                  cudaMemcpyDefault, queue_->stream()));
  }
  void Clear(Tensor& ours) override {
    ONNX_FP8_CUDA(
        cudaMemsetAsync(ours.raw(), 0, ours.bytes(), queue_->stream()));
  }
  bool CanRecord() const override { return true; }
  std::unique_ptr<Recording> Record(const std::function<void()>& run) override {
    return std::make_unique<CudaGraph>(queue_->stream(), run);
  }
  WorkCounts Recorded() override { return CapturedWork(queue_->stream()); }
  ActivityTrace* activities() override { return activities_; }
  HostRanges* host_ranges() override { return host_ranges_; }
  void Synchronize() override {
    for (const auto& side : sides_) {
      if (side) side->Synchronize();
    }
    queue_->Synchronize();
  }
  SideQueue* side_queue(Side side) override {
    std::unique_ptr<cuda::SideStream>& stream = sides_[IndexOf(side)];
    if (!stream) {
      stream = std::make_unique<cuda::SideStream>(
          *queue_, side == Side::kUpdates ? cuda::Priority::kLow
                                          : cuda::Priority::kUsual);
    }
    return stream.get();
  }

 private:
  [[noreturn]] void FailOutOfMemory(size_t bytes) {
    cudaGetLastError();
    DeviceMemory memory = *Memory();
    Fail("out of GPU memory: expected ", bytes, " bytes more, got ",
         memory.free, " free of ", memory.total);
  }

  ActivityTrace* activities_;  // null: nobody asked
  HostRanges* host_ranges_ = cuda::NvtxRanges();
  // Memory that outlives the provider still needs the stream.
  std::shared_ptr<cuda::Queue> queue_;
  // Made when they are asked for.
  std::array<std::unique_ptr<cuda::SideStream>, kSides> sides_;
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeCudaProvider(
    const ProviderOptions& options) {
  ActivityTrace* activities = nullptr;
  try {
    if (options.timeline) activities = &cuda::CuptiTrace();
  } catch (const Error&) {
    ChooseDevice();  // a machine without a GPU has no CUPTI either
    throw;
  }
  ChooseDevice();
  cuda::RegisterWithRuntime();
  return std::make_unique<CudaProvider>(options, activities);
}

const KernelRegistry& CudaKernels() {
  static const KernelRegistry kernels = [] {
    KernelRegistry r;
    cuda::RegisterAll(r);
    r.RequireFacts();
    return r;
  }();
  return kernels;
}

}  // namespace onnx_fp8
