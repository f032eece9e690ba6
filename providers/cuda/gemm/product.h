// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by cuBLASLt.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "onnx_fp8/dtype.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/gemm/cublaslt.h"

namespace onnx_fp8::cuda {

// A row-major matrix, as it lies in memory.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kFloat;
  bool transposed = false;       // op(x) is its transpose
  int64_t batch_stride = 0;      // elements from one matrix to the next
  const float* scale = nullptr;  // of FP8, on the device
};

// y (m,n) = alpha · op(a) · op(b) + beta · y, `batch` times. a and b are both
// float, both of one 16-bit type, or both FP8. y is float, or of the operands'
// 16-bit type; FP8 gives float, bfloat16 or float16.
//
// FP8 on Hopper: a is (m,k) as it lies in memory and b is (n,k), transposed;
// m, n and k are multiples of 16; at most one is E5M2.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  void* y = nullptr;
  DType y_dtype = DType::kFloat;
  int64_t batch = 1, y_batch_stride = 0;
  float alpha = 1.0f, beta = 0.0f;
};

// The handle, the workspace, and the algorithms that were chosen, by shape and
// alignment.
class Products {
 public:
  // Errors: CublasLtFunctions'; out of memory.
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Adds the product to the stream. Float sums are float, without TF32.
  // REQUIRES: no size is 0. Errors: cuBLASLt has no algorithm for it.
  void Multiply(const Product& product, cudaStream_t stream);

 private:
  using Key =
      std::tuple<int64_t, int64_t, int64_t, int64_t, DType, DType, DType, bool,
                 bool, int64_t, int64_t, std::array<uint32_t, 3>>;

  const CublasLt& lt_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace onnx_fp8::cuda
