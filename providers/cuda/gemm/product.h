// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by cuBLASLt.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "onnx_fp8/dtype.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/gemm/algorithm_file.h"
#include "providers/cuda/gemm/cublaslt.h"

namespace onnx_fp8::cuda {

// The scales of an FP8 operand. "Outer" are the rows of op(a), the columns of
// op(b).
enum class ScaleMode : uint8_t {
  kOne,
  kOuter,  // one for each outer element
  // One for each outer element and 128 elements of k, as a matrix
  // (k/128, outer) whose rows are padded to multiples of 4.
  kVector128,
  // One for 128 outer elements and 128 elements of k, as a matrix
  // (outer/128, k/128) whose rows are padded to multiples of 4.
  kBlock128,
  // One for each outer element and 32 elements of k, of float8e8m0, in the
  // order of block_scales.h. Blackwell has it.
  kMx,
};

// A row-major matrix, as it lies in memory.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kFloat;
  bool transposed = false;   // op(x) is its transpose
  int64_t batch_stride = 0;  // elements from one matrix to the next
  ScaleMode mode = ScaleMode::kOne;
  const void* scales = nullptr;  // of FP8, on the device; null: 1
};

// y (m,n) = alpha · op(a) · op(b) + beta · c, `batch` times. a and b are both
// float, both of one 16-bit type, or both FP8. y is float, or of the operands'
// 16-bit type; FP8 gives float, bfloat16 or float16.
//
// FP8 on Hopper: a is (m,k) as it lies in memory and b is (n,k), transposed;
// m, n and k are multiples of 16; at most one is E5M2. The scale modes are
// equal, or kVector128 and kBlock128; not both are kBlock128. With kMx, k is a
// multiple of 32.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  void* y = nullptr;
  DType y_dtype = DType::kFloat;
  int64_t batch = 1, y_batch_stride = 0;
  float alpha = 1.0f, beta = 0.0f;
  // Like y, which may be the same memory; not read if beta is 0. Null: y.
  const void* c = nullptr;
  // (n), added to each row of y, of a dtype that TakesBias; null: none.
  const void* bias = nullptr;
  DType bias_dtype = DType::kFloat;
  bool fast_accum = false;  // of FP8: sums of fewer bits
};

// Whether the product of operands of one dtype into another adds a bias of a
// third.
bool TakesBias(DType operands, DType y, DType bias);

class Descriptors;  // of one product, to cuBLASLt

// The workspace that an algorithm may use: NVIDIA's advice for Hopper. It is
// the same for all products, so that a plan needs no GPU to know it.
inline constexpr size_t kProductWorkspace = size_t{32} << 20;

// The handle, and the algorithms that were chosen, by shape and alignment. They
// are kept for the next process (algorithm_file.h): the heuristics' first ones
// and the fastest ones apart, so that the option changes nothing for runs
// without it.
class Products {
 public:
  // Errors: CublasLtFunctions'.
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Whether cuBLASLt has an algorithm for the product. Versions and GPUs differ
  // in scale modes other than kOne. Only the alignment of addresses matters;
  // null is aligned to 256.
  bool Has(const Product& product);

  // Adds the product to the queue's stream. `workspace`: kProductWorkspace
  // bytes of the stream's. Float sums are float, without TF32. REQUIRES: no
  // size is 0. Errors: cuBLASLt has no algorithm for it.
  //
  // The algorithm is the heuristics' first one. With the queue's option `tune`
  // it is the fastest of their first eight; the first call for a product times
  // them (tune.h), unless the stream captures.
  void Multiply(const Product& product, void* workspace, Queue& queue);

 private:
  using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

  // What an earlier call or another process has chosen; null: not known.
  const Algorithm* Known(const std::string& key,
                         const Descriptors& descriptors);
  const Algorithm& AlgorithmFor(const Product& product,
                                const Descriptors& descriptors);
  // nullopt: not known, and now it can't be timed.
  Algorithm FastestFor(const Product& product, const Descriptors& descriptors,
                       void* workspace, cudaStream_t stream);
  cublasStatus_t Start(const Product& product, const Descriptors& descriptors,
                       const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                       cudaStream_t stream);

  bool HasModesOf(const Product& product) const;

  const CublasLt& lt_;
  int major_ = 0;  // of the GPU's compute capability
  cublasLtHandle_t handle_ = nullptr;
  std::map<std::string, Algorithm> algorithms_;  // nullopt: there is none
  std::optional<AlgorithmFile> file_;
};

}  // namespace onnx_fp8::cuda
