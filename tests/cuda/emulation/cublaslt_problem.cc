// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cublaslt_problem.h"

namespace onnx_fp8::emulation {
namespace {

LtMatrix MatrixOf(const LtLayout& layout) {
  const Attributes& t = layout.attributes;
  return {
      .type = layout.type,
      .rows = static_cast<int64_t>(layout.rows),
      .columns = static_cast<int64_t>(layout.columns),
      .ld = layout.ld,
      .batch = GetAttribute<int32_t>(t, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1),
      .stride = GetAttribute<int64_t>(
          t, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0),
      .column_major = GetAttribute(t, CUBLASLT_MATRIX_LAYOUT_ORDER,
                                   CUBLASLT_ORDER_COL) == CUBLASLT_ORDER_COL,
  };
}

// The documented default.
cudaDataType UsualBiasType(const LtProblem& p) {
  bool other = IsFp8(p.a.type) && (p.d.type == CUDA_R_32F || IsFp8(p.d.type));
  if (!other) return p.d.type;
  return IsFp8(p.d.type) ? p.c.type : CUDA_R_16BF;
}

void ReadScales(const Attributes& t, LtProblem& p) {
  p.a_mode = GetAttribute(t, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 0);
  p.b_mode = GetAttribute(t, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 0);
  const float* none = nullptr;
  p.a_scale = GetAttribute(t, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, none);
  p.b_scale = GetAttribute(t, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, none);
  p.d_scale = GetAttribute(t, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, none);
  p.amax =
      GetAttribute<float*>(t, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, nullptr);
}

void ReadEpilogue(const Attributes& t, LtProblem& p) {
  p.epilogue = GetAttribute<uint32_t>(t, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                      CUBLASLT_EPILOGUE_DEFAULT);
  p.bias =
      GetAttribute<const void*>(t, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  p.bias_stride =
      GetAttribute<int64_t>(t, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 0);
  p.bias_type =
      GetAttribute(t, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, UsualBiasType(p));
}

}  // namespace

size_t LtMatrix::bytes() const {
  int64_t all = elements() + (batch - 1) * stride;
  return static_cast<size_t>(all) * BytesOfType(type);
}

LtProblem ReadProblem(const LtDescription& description, const LtLayout& a,
                      const LtLayout& b, const LtLayout& c, const LtLayout& d) {
  const Attributes& t = description.attributes;
  LtProblem p = {
      .a = MatrixOf(a), .b = MatrixOf(b), .c = MatrixOf(c), .d = MatrixOf(d)};
  auto transposes = [&](int key) {
    return GetAttribute(t, key, CUBLAS_OP_N) != CUBLAS_OP_N;
  };
  p.transpose_a = transposes(CUBLASLT_MATMUL_DESC_TRANSA);
  p.transpose_b = transposes(CUBLASLT_MATMUL_DESC_TRANSB);
  p.m = p.d.rows;
  p.n = p.d.columns;
  p.k = p.transpose_a ? p.a.rows : p.a.columns;
  ReadScales(t, p);
  ReadEpilogue(t, p);
  p.device_scalars =
      GetAttribute(t, CUBLASLT_MATMUL_DESC_POINTER_MODE,
                   CUBLASLT_POINTER_MODE_HOST) == CUBLASLT_POINTER_MODE_DEVICE;
  p.compute = description.compute;
  p.scale_type = description.scale_type;
  return p;
}

bool IsFp8(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

size_t BytesOfType(cudaDataType type) {
  if (type == CUDA_R_32F) return 4;
  if (type == CUDA_R_16F || type == CUDA_R_16BF) return 2;
  return IsFp8(type) ? 1 : 0;
}

}  // namespace onnx_fp8::emulation
