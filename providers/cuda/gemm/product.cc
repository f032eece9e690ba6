// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/gemm/product.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/gemm/tune.h"

namespace onnx_fp8::cuda {
namespace {

cudaDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return CUDA_R_32F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    default:
      Fail("expected a product of floats, got ", Name(dtype));
  }
}

std::string Text(const Product& p) {
  return Concat("a product (", p.m, ",", p.k, ")x(", p.k, ",", p.n, ") of ",
                Name(p.a.dtype), p.a.transposed ? " transposed" : "", " and ",
                Name(p.b.dtype), p.b.transposed ? " transposed" : "", " into ",
                Name(p.y_dtype));
}

// The largest power of two to which the address is aligned, at most the
// heuristics' default.
uint32_t AlignmentOf(const void* data) {
  auto address = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<uint32_t>(address & -address);
}

const void* COf(const Product& p) { return p.c ? p.c : p.y; }

// The alignments of a, b, c and y.
using Alignments = std::array<uint32_t, 4>;

Alignments AlignmentsOf(const Product& p) {
  Alignments all = {AlignmentOf(p.a.data), AlignmentOf(p.b.data),
                    AlignmentOf(COf(p)), AlignmentOf(p.y)};
  return all;
}

// All that decides on the algorithm.
std::string KeyOf(const Product& p) {
  std::string key;
  for (int64_t x :
       {p.m, p.n, p.k, p.batch, p.a.batch_stride, p.b.batch_stride,
        p.y_batch_stride, int64_t{p.a.transposed}, int64_t{p.b.transposed},
        static_cast<int64_t>(p.a.dtype), static_cast<int64_t>(p.b.dtype),
        static_cast<int64_t>(p.y_dtype), static_cast<int64_t>(p.a.mode),
        static_cast<int64_t>(p.b.mode), int64_t{p.fast_accum},
        int64_t{p.bias != nullptr}, static_cast<int64_t>(p.bias_dtype)}) {
    key += std::to_string(x) + " ";
  }
  for (uint32_t alignment : AlignmentsOf(p)) {
    key += std::to_string(alignment) + " ";
  }
  return key;
}

// The version of cuBLASLt and the GPU.
std::string WriterOf(const CublasLt& lt, const cudaDeviceProp& gpu) {
  return Concat("cuBLASLt ", lt.GetVersion(), " on ", gpu.name, ", ", gpu.major,
                ".", gpu.minor, ", ", gpu.multiProcessorCount,
                " multiprocessors");
}

// How many of the heuristics' algorithms are timed.
constexpr int kMostTimed = 8;

size_t ResultBytes(const Product& p) {
  int64_t elements = (p.batch - 1) * p.y_batch_stride + p.m * p.n;
  return static_cast<size_t>(elements) * ByteSize(p.y_dtype);
}

// Memory of the stream; null: there is not enough.
std::shared_ptr<void> TryAllocate(size_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  if (cudaMallocAsync(&data, bytes, stream) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return {data, [stream](void* memory) { cudaFreeAsync(memory, stream); }};
}

bool HasManyScales(const Product& p) {
  return p.a.mode != ScaleMode::kOne || p.b.mode != ScaleMode::kOne;
}

cublasLtMatmulMatrixScale_t ModeOf(const Matrix& x) {
  switch (x.mode) {
    case ScaleMode::kOuter:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case ScaleMode::kVector128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case ScaleMode::kBlock128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case ScaleMode::kMx:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

}  // namespace

// The tables of cublasLtMatmul's page.
bool TakesBias(DType operands, DType y, DType bias) {
  if (IsFloat8(operands) && y == DType::kFloat) return bias == DType::kBFloat16;
  return bias == y;
}

class Descriptors {
 public:
  // cuBLASLt's matrices are column-major: ours, transposed. So its first
  // operand is b, and its result is (n,m).
  Descriptors(const CublasLt& lt, const Product& p) : lt_(lt), text_(Text(p)) {
    CheckStatus(lt.MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "cublasLtMatmulDescCreate");
    Set(CUBLASLT_MATMUL_DESC_TRANSA,
        p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB,
        p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.b.scales) Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b.scales);
    if (p.a.scales) Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a.scales);
    if (HasManyScales(p)) {
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, ModeOf(p.b));
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, ModeOf(p.a));
    }
    if (p.bias) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(p.bias_dtype));
    }
    if (p.fast_accum) Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    MakeLayout(&b, p.b.dtype, p.k, p.n, p.b.transposed, p.batch,
               p.b.batch_stride);
    MakeLayout(&a, p.a.dtype, p.m, p.k, p.a.transposed, p.batch,
               p.a.batch_stride);
    MakeLayout(&y, p.y_dtype, p.m, p.n, false, p.batch, p.y_batch_stride);
  }
  ~Descriptors() {
    for (cublasLtMatrixLayout_t layout : {a, b, y}) {
      if (layout) lt_.MatrixLayoutDestroy(layout);
    }
    if (operation) lt_.MatmulDescDestroy(operation);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  void CheckStatus(cublasStatus_t status, const char* call) const {
    Check(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", call, ": ",
          lt_.GetStatusName(status), " for ", text_);
  }

  // Whether an algorithm of another process is one of this product.
  bool Takes(cublasLtHandle_t handle,
             const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t checked = {};
    cublasStatus_t status = lt_.MatmulAlgoCheck(handle, operation, b, a, y, y,
                                                &algorithm, &checked);
    return status == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= kProductWorkspace;
  }

  // Returns the heuristics' first algorithms, at most `most` of them. The list
  // is empty if cuBLASLt has no algorithm. REQUIRES: most <= kMostTimed.
  std::vector<cublasLtMatmulAlgo_t> Choose(cublasLtHandle_t handle,
                                           const Alignments& alignments,
                                           int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    CheckStatus(lt_.MatmulPreferenceCreate(&preference),
                "cublasLtMatmulPreferenceCreate");
    auto set = [&](cublasLtMatmulPreferenceAttributes_t key, auto value) {
      lt_.MatmulPreferenceSetAttribute(preference, key, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kProductWorkspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[3]);
    cublasLtMatmulHeuristicResult_t found[kMostTimed] = {};
    int count = 0;
    cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
        handle, operation, b, a, y, y, preference, most, found, &count);
    lt_.MatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || count == 0) return {};
    CheckStatus(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
      algorithms.push_back(found[i].algo);
    }
    return algorithms;
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, y = nullptr;

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t key, T value) {
    CheckStatus(
        lt_.MatmulDescSetAttribute(operation, key, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }

  // The layout of op(x) (rows,columns) as it lies in memory, column-major.
  void MakeLayout(cublasLtMatrixLayout_t* layout, DType dtype, int64_t rows,
                  int64_t columns, bool transposed, int64_t batch,
                  int64_t stride) {
    int64_t inner = transposed ? rows : columns;
    int64_t outer = transposed ? columns : rows;
    CheckStatus(lt_.MatrixLayoutCreate(layout, TypeOf(dtype),
                                       static_cast<uint64_t>(inner),
                                       static_cast<uint64_t>(outer), inner),
                "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    auto count = static_cast<int32_t>(batch);
    lt_.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                 &count, sizeof count);
    lt_.MatrixLayoutSetAttribute(*layout,
                                 CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                 &stride, sizeof stride);
  }

  const CublasLt& lt_;
  std::string text_;
};

Products::Products() : lt_(CublasLtFunctions()) {
  cublasStatus_t status = lt_.Create(&handle_);
  Check(status == CUBLAS_STATUS_SUCCESS,
        "cuBLASLt: cublasLtCreate: ", lt_.GetStatusName(status));
  int device = 0;
  cudaDeviceProp gpu;
  ONNX_FP8_CUDA(cudaGetDevice(&device));
  ONNX_FP8_CUDA(cudaGetDeviceProperties(&gpu, device));
  major_ = gpu.major;
  file_.emplace(CacheFolder(), WriterOf(lt_, gpu));
}

Products::~Products() { lt_.Destroy(handle_); }

const Products::Algorithm* Products::Known(const std::string& key,
                                           const Descriptors& descriptors) {
  auto known = algorithms_.find(key);
  if (known != algorithms_.end()) return &known->second;
  Algorithm kept = file_->Find(key);
  if (!kept || !descriptors.Takes(handle_, *kept)) return nullptr;
  return &algorithms_.emplace(key, kept).first->second;
}

const Products::Algorithm& Products::AlgorithmFor(
    const Product& p, const Descriptors& descriptors) {
  std::string key = KeyOf(p);
  if (const Algorithm* known = Known(key, descriptors)) return *known;
  auto first = descriptors.Choose(handle_, AlignmentsOf(p), 1);
  Algorithm chosen;
  if (!first.empty()) {
    chosen = first[0];
    file_->Set(key, *chosen);
  }
  return algorithms_.emplace(key, chosen).first->second;
}

// A product that does not read its result may run several times; the caller
// runs it once more. A product that adds to its result may not: its trials
// write into other memory, and nobody reads the numbers there.
Products::Algorithm Products::FastestFor(const Product& p,
                                         const Descriptors& descriptors,
                                         void* workspace, cudaStream_t stream) {
  std::string key = "tuned " + KeyOf(p);
  if (const Algorithm* known = Known(key, descriptors)) return *known;
  if (IsCapturing(stream)) return std::nullopt;
  Product trial = p;
  std::shared_ptr<void> memory;
  if (p.beta != 0 && COf(p) == p.y) {
    memory = TryAllocate(ResultBytes(p), stream);
    if (!memory) return std::nullopt;
    trial.y = memory.get();
    trial.c = nullptr;
  }
  auto all = descriptors.Choose(handle_, AlignmentsOf(p), kMostTimed);
  std::optional<size_t> fastest = FastestOf(
      all.size(),
      [&](size_t i) {
        return Start(trial, descriptors, all[i], workspace, stream) ==
               CUBLAS_STATUS_SUCCESS;
      },
      stream);
  if (!fastest) return std::nullopt;
  file_->Set(key, all[*fastest]);
  return algorithms_.emplace(key, all[*fastest]).first->second;
}

cublasStatus_t Products::Start(const Product& p, const Descriptors& d,
                               const cublasLtMatmulAlgo_t& algorithm,
                               void* workspace, cudaStream_t stream) {
  return lt_.Matmul(handle_, d.operation, &p.alpha, p.b.data, d.b, p.a.data,
                    d.a, &p.beta, COf(p), d.y, p.y, d.y, &algorithm, workspace,
                    kProductWorkspace, stream);
}

// A library that does not know a mode must not be asked for it.
bool Products::HasModesOf(const Product& p) const {
  if (!HasManyScales(p)) return true;
  bool mx = p.a.mode == ScaleMode::kMx;
  return mx ? lt_.GetVersion() >= 120800 && major_ == 10
            : lt_.GetVersion() >= 120900;
}

bool Products::Has(const Product& p) {
  if (!HasModesOf(p)) return false;
  return AlgorithmFor(p, Descriptors(lt_, p)).has_value();
}

void Products::Multiply(const Product& p, void* workspace, Queue& queue) {
  Descriptors descriptors(lt_, p);
  cudaStream_t stream = queue.stream();
  Algorithm algorithm;
  if (queue.options().tune) {
    algorithm = FastestFor(p, descriptors, workspace, stream);
  }
  if (!algorithm) algorithm = AlgorithmFor(p, descriptors);
  descriptors.CheckStatus(
      algorithm ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED,
      "cublasLtMatmulAlgoGetHeuristic");
  descriptors.CheckStatus(Start(p, descriptors, *algorithm, workspace, stream),
                          "cublasLtMatmul");
}

}  // namespace onnx_fp8::cuda
