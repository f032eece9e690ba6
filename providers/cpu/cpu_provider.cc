// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/cpu_provider.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "graph/op_facts.h"
#include "onnx_fp8/tensor.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/math/isa.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/kernel.h"
#include "providers/run/progress_thread.h"

namespace onnx_fp8 {

void RegisterAll(KernelRegistry& r);  // cmake/registers.cmake writes it

namespace {

// Bytes per second that all threads of the pool together read and write in a =
// b + 3 c over arrays of 64 MiB each, counted as in the STREAM benchmark. Each
// call measures anew, in about a tenth of a second.
double PeakBandwidth() {
  constexpr int64_t kElements = int64_t{16} << 20;
  constexpr double kSeconds = 0.05;
  constexpr int kFewestRuns = 3;
  using Clock = std::chrono::steady_clock;
  Tensor arrays[3];
  for (Tensor& array : arrays) {
    array = Tensor::Allocate(DType::kFloat, {kElements});
  }
  float *a = arrays[0].data<float>(), *b = arrays[1].data<float>(),
        *c = arrays[2].data<float>();
  int64_t share = (kElements + NumThreads() - 1) / NumThreads();
  // Fresh pages are slow, and lie near the thread that first writes them.
  ParallelFor(kElements, share, [=](int64_t first, int64_t last) {
    for (float* array : {a, b, c}) std::fill(array + first, array + last, 1.0f);
  });
  double best = 0, spent = 0;
  for (int run = 0; run < kFewestRuns || spent < kSeconds; ++run) {
    auto begin = Clock::now();
    ParallelFor(kElements, share, [=](int64_t first, int64_t last) {
      OnBestIsa([=] {
        ONNX_FP8_IVDEP
        for (int64_t i = first; i < last; ++i) a[i] = b[i] + 3 * c[i];
      });
    });
    std::chrono::duration<double> took = Clock::now() - begin;
    double seconds = std::max(took.count(), 1e-9);
    best = std::max(best, 3.0 * sizeof(float) * kElements / seconds);
    spent += seconds;
  }
  return best;
}

// The speed of the arithmetic of `kernels` on registers alone: multiplications
// and additions per second on all threads of the pool at once. Each call
// measures anew, in about a tenth of a second. No product can be faster.
double PeakFlops(const GemmKernels& kernels) {
  constexpr int64_t kRounds = 200'000;
  constexpr double kSeconds = 0.1;
  using Clock = std::chrono::steady_clock;
  int64_t threads = NumThreads();
  std::vector<float> sums(static_cast<size_t>(threads * kRegisterSums));
  double best = 0, spent = 0;
  while (spent < kSeconds) {
    std::vector<int64_t> operations(static_cast<size_t>(threads));
    auto begin = Clock::now();
    ParallelFor(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        operations[static_cast<size_t>(i)] =
            kernels.registers(kRounds, sums.data() + i * kRegisterSums);
      }
    });
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    int64_t all = 0;
    for (int64_t n : operations) all += n;
    best = std::max(best, static_cast<double>(all) / std::max(seconds, 1e-9));
    spent += seconds;
  }
  return best;
}

class CpuProvider : public ExecutionProvider {
 public:
  std::string Name() const override { return "cpu"; }
  ProviderInfo Describe() const override {
    return {onnx_fp8::Name(ActiveIsa()), GemmBackend(),
            Bf16Kernels().a_layout != PanelLayout::kFloat};
  }
  MachinePeaks MeasurePeaks() override {
    return {.flops = PeakFlops(FloatKernels()),
            .eight_bit_flops = PeakFlops(Bf16Kernels()),
            .bytes = PeakBandwidth()};
  }
  const KernelRegistry& Kernels() const override { return CpuKernels(); }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    return AllocateBytes(bytes);
  }

  void CopyIn(const Tensor& host, Tensor& ours) override {
    if (host.bytes() > 0) std::memcpy(ours.raw(), host.raw(), host.bytes());
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    CopyIn(ours, host);
  }
  void Copy(const Tensor& from, Tensor& to) override { CopyIn(from, to); }
  void Clear(Tensor& ours) override {
    std::memset(ours.raw(), 0, ours.bytes());
  }
  void Synchronize() override {}
  SideQueue* side_queue(Side side) override {
    return side == Side::kCollectives ? &progress_ : nullptr;
  }

 private:
  ProgressThread progress_;
};

class CpuEvaluator : public Evaluator {
 public:
  // A collective needs all ranks, whatever its operands are.
  bool CanEvaluate(const Node& node) const override {
    return !IsCollective(node) &&
           CpuKernels().Find(node.domain, node.op) != nullptr;
  }

  std::vector<Tensor> Evaluate(
      const Node& node, const std::vector<Tensor>& inputs) const override {
    const KernelEntry* entry = CpuKernels().Find(node.domain, node.op);
    Check(entry != nullptr, "[", node.Where(), "] has no CPU kernel");
    std::vector<Tensor> outputs(node.outputs().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value* value = node.out(i);
      if (value && value->concrete() && ByteSize(value->dtype) > 0) {
        outputs[i] = Tensor::Allocate(value->dtype, *value->shape);
      }
    }
    KernelContext context(node, inputs, outputs);
    entry->kernel(context);
    for (size_t i = 0; i < outputs.size(); ++i) {
      Check(!node.out(i) || outputs[i].defined(), "[", node.Where(),
            "] shape of output ", i, " can't be told from the inputs");
    }
    return outputs;
  }
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeCpuProvider() {
  return std::make_unique<CpuProvider>();
}

const KernelRegistry& CpuKernels() {
  static const KernelRegistry kernels = [] {
    KernelRegistry r;
    RegisterAll(r);
    r.RequireFacts();
    return r;
  }();
  return kernels;
}

std::unique_ptr<Evaluator> MakeCpuEvaluator() {
  return std::make_unique<CpuEvaluator>();
}

}  // namespace onnx_fp8
