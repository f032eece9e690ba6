// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace onnx_fp8::emulation_test {

// A product as a provider asks for it, and what a test changes of it. At first
// an FP8 product that cuBLASLt does.
struct LtProduct {
  int m = 64, n = 64, k = 64;
  int lda = 0, ldb = 0, ldc = 0, ldd = 0;  // 0: the smallest
  cublasOperation_t op_a = CUBLAS_OP_T, op_b = CUBLAS_OP_N;
  cudaDataType a = CUDA_R_8F_E4M3, b = CUDA_R_8F_E4M3;
  cudaDataType c = CUDA_R_32F, d = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;

  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int bias_type = -1;  // unless the default
  const void* bias = nullptr;

  int a_mode = 0, b_mode = 0;
  const float *a_scale = nullptr, *b_scale = nullptr, *d_scale = nullptr;
  float* amax = nullptr;

  int batch = 1, batch_c = 0;  // 0: as the others
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_d = 0;
  int order = CUBLASLT_ORDER_COL;

  float alpha = 1, beta = 0;
  uint64_t workspace_bytes = 0;
  void* workspace = nullptr;
  uint32_t alignment = 0;  // unless the default
  cudaStream_t stream = nullptr;
  int algorithm = 0;  // index among the heuristics' offers

  // Throw an Error that names the status.
  void Run(const void* A, const void* B, const void* C, void* D) const;
  // Asks only whether there is an algorithm.
  void Ask() const;
};

}  // namespace onnx_fp8::emulation_test
