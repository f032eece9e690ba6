// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/moment_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "providers/cpu/math/draw_runs.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/round_stochastic.h"

namespace onnx_fp8 {
namespace {

// Elements per task.
constexpr int64_t kMomentGrain = 16384;

// x[i] = x[i] · scale, and its square for a mean of squares. `x`: the numbers
// of the codes.
void ScaleBlock(float scale, bool is_square, float* x, int64_t n) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < n; ++i) {
      const float real = x[i] * scale;
      x[i] = is_square ? MeanOfRoot(real) : real;
    }
  });
}

// A quotient that is NaN gets the NaN without sign.
void QuotientsOf(const float* x, float scale, float* y, int64_t n) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < n; ++i) {
      const float quotient = x[i] / scale;
      y[i] = quotient == quotient ? quotient
                                  : std::numeric_limits<float>::quiet_NaN();
    }
  });
}

void RootsOf(const float* x, float* y, int64_t n) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
  });
}

// The codes of roots that lie in a row and share a key.
void EncodeRoots(const float* root, float scale, uint8_t* code, int64_t n,
                 uint32_t key, uint32_t place) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t draw = DrawAt(key, place + static_cast<uint32_t>(i));
      code[i] = static_cast<uint8_t>(CodeOfRoot(root[i], scale, draw));
    }
  });
}

}  // namespace

void MomentCodec::Decode(int64_t begin, int64_t n, float* x) const {
  if (dtype == DType::kBFloat16) {
    return WidenFloats(dtype, static_cast<const uint16_t*>(in) + begin, x, n);
  }
  auto* codes = static_cast<const uint8_t*>(in) + begin;
  KernelsFor(ActiveIsa()).decode_e4m3(codes, x, n);
  const float* scale = scales_in + blocks.Of(begin);
  const int64_t end = blocks.Of(begin + n - 1) + 1;
  for (int64_t b = blocks.Of(begin); b < end; ++b) {
    const int64_t at = blocks.Begin(b);
    ScaleBlock(*scale++, is_square, x + (at - begin), blocks.Begin(b + 1) - at);
  }
}

void MomentCodec::Encode(const float* x, int64_t begin, int64_t n) const {
  if (dtype == DType::kBFloat16) {
    auto* kept = static_cast<uint16_t*>(out) + begin;
    if (is_square) return RoundStochastic(x, kept, begin, n, places, key);
    return NarrowFloats(dtype, x, kept, n);
  }
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto* codes = static_cast<uint8_t*>(out);
  const int64_t end = blocks.Of(begin + n - 1) + 1;
  for (int64_t b = blocks.Of(begin); b < end; ++b) {
    const int64_t at = blocks.Begin(b), count = blocks.Begin(b + 1) - at;
    const float* block = x + (at - begin);
    float buffer[kMomentBlock];
    if (!is_square) {
      const float scale = MomentScale(kernels.amax(block, count).finite);
      QuotientsOf(block, scale, buffer, count);
      kernels.encode_e4m3(buffer, 1.0f, codes + at, count);
      scales_out[b] = scale;
      continue;
    }
    RootsOf(block, buffer, count);
    const float* roots = buffer;
    const float scale = MomentScale(kernels.amax(roots, count).finite);
    ForDrawRuns(at, count, places, key,
                [=](int64_t i, int64_t run, uint32_t own, uint32_t place) {
                  EncodeRoots(roots + i, scale, codes + at + i, run, own,
                              place);
                });
    scales_out[b] = scale;
  }
}

void ForMomentPieces(const MomentBlocks& blocks,
                     const std::function<void(int64_t, int64_t)>& fn) {
  if (blocks.rows == 0 || blocks.columns == 0) return;
  const int64_t widest = std::min(blocks.columns, kMomentBlock);
  const int64_t at_once = kMomentPiece / widest;
  const int64_t grain = std::max(kMomentGrain / widest, at_once);
  ParallelFor(blocks.count(), grain, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; b += at_once) {
      const int64_t begin = blocks.Begin(b);
      fn(begin, blocks.Begin(std::min(b + at_once, last)) - begin);
    }
  });
}

}  // namespace onnx_fp8
