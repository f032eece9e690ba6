// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/round_stochastic.h"

#include <algorithm>
#include <bit>

#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {
namespace {

// Elements from `place` on that lie in a row and share a key.
void RoundRow(const float* x, uint16_t* y, int64_t n, int64_t place,
              uint32_t key) {
  const uint32_t own = DrawKeyOf(key, place),
                 low = static_cast<uint32_t>(place);
  OnBestIsa([=] {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t draw = DrawAt(own, low + static_cast<uint32_t>(i));
      y[i] = RoundBFloat16(std::bit_cast<uint32_t>(x[i]), draw);
    }
  });
}

}  // namespace

void RoundStochastic(const float* x, uint16_t* y, int64_t first, int64_t n,
                     const ElementPlaces& places, uint32_t key) {
  constexpr int64_t kKey = int64_t{1} << 32;
  const bool in_a_row = places.run == places.stride;
  for (int64_t i = 0; i < n;) {
    const int64_t place = places.Of(first + i);
    int64_t count = std::min(n - i, kKey - place % kKey);
    if (!in_a_row) {
      const int64_t inside = (first + i + places.shift) % places.run;
      count = std::min(count, places.run - inside);
    }
    RoundRow(x + i, y + i, count, place, key);
    i += count;
  }
}

}  // namespace onnx_fp8
