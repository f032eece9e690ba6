// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/kernels.inc"

namespace onnx_fp8 {
namespace {

struct Floats {
  using Register = __m256;
  using Operand = __m256;
  static constexpr int kWidth = 8, kDepth = 1;

  static Register Zero() { return _mm256_setzero_ps(); }
  static Register Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Register x) { _mm256_storeu_ps(p, x); }
  static Register Set(float x) { return _mm256_set1_ps(x); }
  static Register Add(Register x, Register y) { return _mm256_add_ps(x, y); }
  static Register Multiply(Register x, Register y) {
    return _mm256_mul_ps(x, y);
  }
  static Operand Read(const char* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static Operand Spread(const char* p) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
  }
  static Register MultiplyAdd(Register x, Operand a, Operand b) {
    return _mm256_fmadd_ps(a, b, x);
  }
};

}  // namespace

extern const GemmKernels kGemmAvx2 = {
    "avx2", PanelLayout::kFloat, PanelLayout::kFloat,       6,   16, 192,
    256,    Block<Floats, 6, 2>, OnRegisters<Floats, 6, 2>, true};

}  // namespace onnx_fp8
