// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cublaslt_rules.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8::emulation {
namespace {

constexpr int kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
constexpr int kOuter = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
constexpr int kVector = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr int kBlock = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;

bool HasShape(const LtMatrix& x, int64_t rows, int64_t columns,
              bool transposed) {
  if (transposed) std::swap(rows, columns);
  return x.rows == rows && x.columns == columns;
}

LtVerdict CheckMatrix(const LtMatrix& x) {
  if (x.ld < x.rows) {
    return LtInvalid("a leading dimension below the number of rows");
  }
  if (BytesOfType(x.type) == 0) {
    return LtUnsupported("a type that is not emulated");
  }
  if (!x.column_major) return LtUnsupported("row order is not emulated");
  return {};
}

LtVerdict CheckShapes(const LtProblem& p) {
  if (p.m <= 0 || p.n <= 0 || p.k <= 0) return LtInvalid("an empty matrix");
  if (!HasShape(p.a, p.m, p.k, p.transpose_a) ||
      !HasShape(p.b, p.k, p.n, p.transpose_b) ||
      !HasShape(p.c, p.m, p.n, false)) {
    return LtInvalid("layouts that do not fit each other");
  }
  for (const LtMatrix* x : {&p.a, &p.b, &p.c, &p.d}) {
    LtVerdict v = CheckMatrix(*x);
    if (v.why) return v;
  }
  return {};
}

LtVerdict CheckBatch(const LtProblem& p) {
  int32_t batch = p.d.batch;
  for (const LtMatrix* x : {&p.a, &p.b, &p.c}) {
    if (x->batch != batch) return LtInvalid("batch counts that differ");
  }
  if (batch < 1) return LtInvalid("an empty batch");
  if (batch == 1) return {};
  if (IsFp8(p.a.type) || IsFp8(p.b.type)) {
    return LtUnsupported("FP8 in batches is not emulated");
  }
  if (p.d.stride < p.d.elements()) {
    return LtInvalid("results of a batch that overlap");
  }
  return {};
}

LtVerdict CheckEpilogue(const LtProblem& p) {
  if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return {};
  if (!p.has_bias()) {
    return LtUnsupported("an epilogue other than the bias is not emulated");
  }
  if (!p.bias) return LtInvalid("the bias epilogue without a bias");
  return {};
}

// The table of cublasLtMatmul's page: types of C, D and bias of FP8 products.
LtVerdict CheckFp8Types(const LtProblem& p) {
  if (!IsFp8(p.a.type) || !IsFp8(p.b.type)) {
    return LtUnsupported("one operand is FP8, the other is not");
  }
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) {
    return LtUnsupported("E5M2 times E5M2");
  }
  if (p.a.type == p.b.type && p.d.type == CUDA_R_8F_E5M2) {
    return LtUnsupported("E4M3 times E4M3 into E5M2");
  }
  bool c_fits = IsFp8(p.d.type)
                    ? p.c.type == CUDA_R_16BF || p.c.type == CUDA_R_16F
                    : p.c.type == p.d.type;
  if (!c_fits) {
    return LtUnsupported("type of C: that of D, or 16 bits where D is FP8");
  }
  cudaDataType bias = p.d.type == CUDA_R_32F ? CUDA_R_16BF : p.c.type;
  if (p.has_bias() && p.bias_type != bias) {
    return LtUnsupported(
        "type of the bias: bfloat16 where D is float, else C's");
  }
  return {};
}

bool IsBlocked(int mode) { return mode == kVector || mode == kBlock; }

LtVerdict CheckScaleModes(const LtProblem& p) {
  bool blackwell = ComputeCapability() == 10;
  for (int mode : {p.a_mode, p.b_mode}) {
    if (blackwell && mode != kScalar && mode != kMx) {
      return LtUnsupported("a scale mode that Blackwell does not have");
    }
    if (!blackwell && mode != kScalar && mode != kOuter && !IsBlocked(mode)) {
      return LtUnsupported("a scale mode that Hopper does not have");
    }
  }
  bool together =
      IsBlocked(p.a_mode) ? IsBlocked(p.b_mode) : p.a_mode == p.b_mode;
  if (!together) return LtUnsupported("scale modes that do not go together");
  if (p.a_mode == kBlock && p.b_mode == kBlock) {
    return LtUnsupported("128x128 blocks for both operands");
  }
  if (p.a_mode == kScalar) return {};
  if (!p.a_scale || !p.b_scale) return LtInvalid("scales are missing");
  if (IsFp8(p.d.type)) return LtUnsupported("an FP8 result of many scales");
  return {};
}

LtVerdict CheckScaleAlignment(const LtProblem& p) {
  for (const float* scale : {p.a_scale, p.b_scale}) {
    auto address = reinterpret_cast<uintptr_t>(scale);
    if ((IsBlocked(p.a_mode) || p.a_mode == kMx) && address % 16 != 0) {
      return LtUnsupported("scales of blocks that are not aligned to 16 bytes");
    }
  }
  return {};
}

LtVerdict CheckFp8Layout(const LtProblem& p) {
  if (!p.transpose_a || p.transpose_b) {
    return LtUnsupported("FP8 on Hopper is TN only");
  }
  if (p.m % 16 != 0 || p.n % 16 != 0 || p.k % 16 != 0) {
    return LtUnsupported("FP8 with a dimension that is no multiple of 16");
  }
  if (p.a_mode == kMx && p.k % 32 != 0) {
    return LtUnsupported("scales of 32 elements of k with a part of a block");
  }
  for (const LtMatrix* x : {&p.a, &p.b, &p.c, &p.d}) {
    if (x->ld * static_cast<int64_t>(BytesOfType(x->type)) % 16 != 0) {
      return LtUnsupported(
          "a leading dimension that is not aligned to 16 bytes");
    }
  }
  return {};
}

LtVerdict CheckFp8(const LtProblem& p) {
  if (p.compute != CUBLAS_COMPUTE_32F || p.scale_type != CUDA_R_32F) {
    return LtUnsupported("FP8 computes in 32F with scale type 32F");
  }
  if ((p.d_scale || p.amax) && !IsFp8(p.d.type)) {
    return LtInvalid("D's scale or amax where D is not FP8");
  }
  for (auto check :
       {CheckFp8Types, CheckFp8Layout, CheckScaleModes, CheckScaleAlignment}) {
    LtVerdict v = check(p);
    if (v.why) return v;
  }
  return {};
}

LtVerdict CheckWide(const LtProblem& p) {
  if (p.a_scale || p.b_scale || p.d_scale || p.amax) {
    return LtInvalid("scales where no operand is FP8");
  }
  bool types = p.a.type == p.b.type && p.c.type == p.d.type &&
               (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
  if (!types) return LtUnsupported("types that do not go together");
  if (p.has_bias() && p.bias_type != p.d.type) {
    return LtUnsupported("type of the bias: D's");
  }
  bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  bool computes = p.compute == CUBLAS_COMPUTE_32F ||
                  p.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                  (tf32 && p.a.type == CUDA_R_32F);
  if (!computes || p.scale_type != CUDA_R_32F) {
    return LtUnsupported("a compute or scale type that is not emulated");
  }
  return {};
}

}  // namespace

LtVerdict LtInvalid(const char* why) {
  return {CUBLAS_STATUS_INVALID_VALUE, why};
}

LtVerdict LtUnsupported(const char* why) {
  return {CUBLAS_STATUS_NOT_SUPPORTED, why};
}

LtVerdict CheckProblem(const LtProblem& p) {
  bool fp8 = IsFp8(p.a.type) || IsFp8(p.b.type);
  for (auto check :
       {CheckShapes, CheckBatch, CheckEpilogue, fp8 ? CheckFp8 : CheckWide}) {
    LtVerdict v = check(p);
    if (v.why) return v;
  }
  return {};
}

}  // namespace onnx_fp8::emulation
