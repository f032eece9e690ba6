// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/kernels.inc"

namespace onnx_fp8 {
namespace {

// vdpbf16ps: two fused multiply-adds, the odd element of a pair first.
// Subnormal results become 0, also where they are rounded; products of 8-bit
// floats are never subnormal.
struct Pairs : Registers512 {
  using Operand = __m512i;
  static constexpr int kDepth = 2;

  static Operand Read(const char* p) { return _mm512_loadu_si512(p); }
  static Operand Spread(const char* p) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(p));
  }
  static Register MultiplyAdd(Register x, Operand a, Operand b) {
    return _mm512_dpbf16_ps(x, reinterpret_cast<__m512bh>(a),
                            reinterpret_cast<__m512bh>(b));
  }
  static void StoreNarrow(uint16_t* p, Register x) {
    __m256bh narrow = _mm512_cvtneps_pbh(x);
    __builtin_memcpy(p, &narrow, sizeof(narrow));
  }
};

}  // namespace

extern const GemmKernels kGemmAvx512Bf16 = {
    "avx512bf16", PanelLayout::kPairs, PanelLayout::kPairs,       14,  32, 126,
    512,          Block<Pairs, 14, 2>, OnRegisters<Pairs, 14, 2>, true};

}  // namespace onnx_fp8
