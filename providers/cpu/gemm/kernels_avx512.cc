// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/kernels.inc"

namespace onnx_fp8 {
namespace {

struct Floats : Registers512 {
  using Operand = __m512;
  static constexpr int kDepth = 1;

  static Operand Read(const char* p) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static Operand Spread(const char* p) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(p));
  }
  static Register MultiplyAdd(Register x, Operand a, Operand b) {
    return _mm512_fmadd_ps(a, b, x);
  }
};

}  // namespace

extern const GemmKernels kGemmAvx512 = {
    "avx512", PanelLayout::kFloat,  PanelLayout::kFloat,        14,  32, 126,
    512,      Block<Floats, 14, 2>, OnRegisters<Floats, 14, 2>, true};

}  // namespace onnx_fp8
