// SPDX-License-Identifier: Apache-2.0
//
// Products of matrix tiles: 16 x 32 bfloat16 by 32 x 16 to 16 x 16 floats.
#include <immintrin.h>

#include "providers/cpu/gemm/kernels.h"

namespace onnx_fp8 {
namespace {

constexpr int kSide = 16;         // rows and columns of a tile of c
constexpr int kTileBytes = 1024;  // of an operand's tile, 32 deep
constexpr int kWide = 2 * kSide;  // four tiles of c are computed together

struct TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// sum (32,32) = a (32,K) · b (K,32), of two panels each. Rows of a are `a_row`
// bytes apart, its tiles `a_step`.
void Multiply(int64_t steps, const char* a0, const char* a1, int64_t a_row,
              int64_t a_step, const char* b0, const char* b1, float* sum) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < steps; ++k) {
    _tile_loadd(4, a0 + k * a_step, a_row);
    _tile_loadd(6, b0 + k * kTileBytes, 64);
    _tile_loadd(7, b1 + k * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1 + k * a_step, a_row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sum, kWide * 4);
  _tile_stored(1, sum + kSide, kWide * 4);
  _tile_stored(2, sum + kSide * kWide, kWide * 4);
  _tile_stored(3, sum + kSide * kWide + kSide, kWide * 4);
}

// c [+]= sum, then · scale or the scales of its row and column, [+ bias], and
// with add_last + the c from before; for m rows and n columns from (row,
// column) on.
void Finish(const GemmBlock& x, const float* sum, int64_t m, int64_t n,
            int64_t row, int64_t column) {
  __m512 scale = _mm512_set1_ps(x.scale);
  float* c = x.c + row * x.ldc + column;
  const float* bias = x.bias ? x.bias + column : nullptr;
  for (int64_t j = 0; j < n; j += kSide) {
    int64_t count = n - j;
    auto mask =
        static_cast<__mmask16>(count < kSide ? (1 << count) - 1 : 0xFFFF);
    __m512 z = bias ? _mm512_maskz_loadu_ps(mask, bias + j) : scale;
    __m512 columns =
        x.row_scale ? _mm512_maskz_loadu_ps(mask, x.column_scale + column + j)
                    : scale;
    for (int64_t i = 0; i < m; ++i) {
      float* to = c + i * x.ldc + j;
      __m512 y = _mm512_load_ps(sum + i * kWide + j);
      __m512 own = scale;
      if (x.row_scale) {
        own = _mm512_mul_ps(_mm512_set1_ps(x.row_scale[row + i]), columns);
      }
      if (x.scale_sum) y = _mm512_mul_ps(y, own);
      if (x.add) y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), y);
      if (x.last) {
        if (!x.scale_sum) y = _mm512_mul_ps(y, own);
        if (bias) y = _mm512_add_ps(y, z);
      }
      if (x.add_last) {
        y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), y);
      }
      _mm512_mask_storeu_ps(to, mask, y);
    }
  }
}

// Panels of B that stay in the second-level cache are multiplied with one pair
// of A's panels after the other, so each row of c is written over a long
// stretch at a time.
void Block(const GemmBlock& x) {
  constexpr int64_t kCached = 512 << 10;
  TileConfig config;
  _tile_loadconfig(&config);
  int64_t steps = x.depth / 32;
  int64_t panel = steps * kTileBytes;
  bool in_place = x.a_row != 0;
  int64_t a_row = in_place ? x.a_row : 64;
  int64_t a_step = in_place ? x.a_step : kTileBytes;
  int64_t a_panel = in_place ? kSide * x.a_row : panel;
  int64_t fit = kCached / panel * kSide / kWide * kWide;
  int64_t stretch = fit > kWide ? fit : kWide;
  alignas(64) float sum[kWide * kWide];
  for (int64_t first = 0; first < x.n; first += stretch) {
    int64_t end = first + stretch < x.n ? first + stretch : x.n;
    for (int64_t i = 0; i < x.m; i += kWide) {
      const char* a = static_cast<const char*>(x.a) + i / kSide * a_panel;
      int64_t m = x.m - i;
      for (int64_t j = first; j < end; j += kWide) {
        const char* b = static_cast<const char*>(x.b) + j / kSide * x.b_panel;
        int64_t n = x.n - j;
        // If the block has no second panel, the first one takes its place.
        Multiply(steps, a, m > kSide ? a + a_panel : a, a_row, a_step, b,
                 n > kSide ? b + x.b_panel : b, sum);
        Finish(x, sum, m < kWide ? m : kWide, n < kWide ? n : kWide, i, j);
      }
    }
  }
  _tile_release();
}

int64_t OnRegisters(int64_t rounds, float* sums) {
  TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kWide * 4);
  _tile_stored(1, sums + kSide, kWide * 4);
  _tile_stored(2, sums + kSide * kWide, kWide * 4);
  _tile_stored(3, sums + kSide * kWide + kSide, kWide * 4);
  _tile_release();
  return rounds * 4 * kSide * kSide * 32 * 2;
}

}  // namespace

extern const GemmKernels kGemmAmx = {"amx",
                                     PanelLayout::kRowTiles,
                                     PanelLayout::kPairTiles,
                                     16,
                                     16,
                                     128,
                                     512,
                                     Block,
                                     OnRegisters};

}  // namespace onnx_fp8
