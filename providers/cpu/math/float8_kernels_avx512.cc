// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/float8_kernels.inc"

namespace onnx_fp8 {
namespace {

// The two bytes of each code's bfloat16, sign left out.
struct WideTable {
  alignas(64) uint8_t low[128], high[128];
};

template <int kMantissa, int kBias, uint32_t kInf, uint32_t kNaN>
constexpr WideTable MakeWideTable() {
  WideTable table = {};
  for (uint32_t code = 0; code < 128; ++code) {
    uint32_t bits = DecodedBits<kMantissa, kBias, kInf, kNaN>(code);
    table.low[code] = static_cast<uint8_t>(bits >> 16);
    table.high[code] = static_cast<uint8_t>(bits >> 24);
  }
  return table;
}

// 64 codes at a time: vpermi2b looks each up among 128 bytes.
template <int kMantissa, int kBias, uint32_t kInf, uint32_t kNaN>
void WidenByTable(const uint8_t* __restrict q, uint16_t* __restrict x,
                  int64_t n) {
  static constexpr WideTable table =
      MakeWideTable<kMantissa, kBias, kInf, kNaN>();
  const __m512i low0 = _mm512_load_si512(table.low);
  const __m512i low1 = _mm512_load_si512(table.low + 64);
  const __m512i high0 = _mm512_load_si512(table.high);
  const __m512i high1 = _mm512_load_si512(table.high + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  // Interleaving works within 128 bits, so the eighths of a vector are first
  // put where their results will be in order.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512i code =
        _mm512_maskz_permutexvar_epi64(0xFF, order, _mm512_loadu_si512(q + i));
    __m512i low = _mm512_permutex2var_epi8(low0, code, low1);
    __m512i high = _mm512_permutex2var_epi8(high0, code, high1);
    high = _mm512_or_si512(high, _mm512_and_si512(code, sign));
    _mm512_storeu_si512(x + i, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(x + i + 32, _mm512_unpackhi_epi8(low, high));
  }
  WidenLoop<kMantissa, kBias, kInf, kNaN>(q + i, x + i, n - i);
}

constexpr Float8Kernels WithTables(Float8Kernels kernels) {
  kernels.widen_e4m3 = WidenByTable<3, 7, 0x7F, 0x7F>;
  kernels.widen_e5m2 = WidenByTable<2, 15, 0x7C, 0x7D>;
  return kernels;
}

}  // namespace

extern const Float8Kernels kFloat8Avx512 = WithTables(kLoops);

}  // namespace onnx_fp8
