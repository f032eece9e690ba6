// SPDX-License-Identifier: Apache-2.0
//
// A matrix product as cuBLASLt's descriptors say it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace onnx_fp8::emulation {

// The scale mode of the MX formats.
inline constexpr int kMx = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;

// Attributes that were set, as bytes.
using Attributes = std::map<int, std::string>;

template <typename T>
T GetAttribute(const Attributes& attributes, int key, T otherwise) {
  auto at = attributes.find(key);
  if (at != attributes.end()) {
    std::memcpy(&otherwise, at->second.data(), sizeof(T));
  }
  return otherwise;
}

// What the handles of cuBLASLt point to.
struct LtLayout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
  Attributes attributes = {};
};

struct LtDescription {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;
  Attributes attributes = {};
};

struct LtPreference {
  Attributes attributes = {};
};

// Column-major, as cuBLAS counts.
struct LtMatrix {
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, ld = 0;
  int32_t batch = 1;
  int64_t stride = 0;  // elements from one of the batch to the next
  bool column_major = true;

  // Size of one matrix of the batch, and of all.
  int64_t elements() const { return ld * (columns - 1) + rows; }
  size_t bytes() const;
};

// d = alpha · op(a) · op(b) + beta · c (+ bias), for each of the batch.
struct LtProblem {
  LtMatrix a, b, c, d;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int a_mode = 0, b_mode = 0;  // of scales
  const float *a_scale = nullptr, *b_scale = nullptr, *d_scale = nullptr;
  float* amax = nullptr;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType bias_type = CUDA_R_32F;
  int64_t bias_stride = 0;
  bool device_scalars = false;  // alpha and beta
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;

  bool has_bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS; }
};

LtProblem ReadProblem(const LtDescription& description, const LtLayout& a,
                      const LtLayout& b, const LtLayout& c, const LtLayout& d);

bool IsFp8(cudaDataType type);
// 0: not emulated.
size_t BytesOfType(cudaDataType type);

}  // namespace onnx_fp8::emulation
