// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/stochastic_rounding.h"

namespace onnx_fp8 {

// Calls fn(i, count, key, place) for elements i … i + count - 1 of the n that
// begin at element `first` of a part: their draws are DrawAt(key, place),
// DrawAt(key, place + 1), … `key`: DrawKey's.
template <typename F>
void ForDrawRuns(int64_t first, int64_t n, const ElementPlaces& places,
                 uint32_t key, F fn) {
  constexpr int64_t kKey = int64_t{1} << 32;
  for (int64_t i = 0; i < n;) {
    const int64_t place = places.Of(first + i);
    int64_t count = std::min(n - i, kKey - place % kKey);
    if (!places.InARow()) {
      const int64_t inside = (first + i + places.shift) % places.run;
      count = std::min(count, places.run - inside);
    }
    fn(i, count, DrawKeyOf(key, place), static_cast<uint32_t>(place));
    i += count;
  }
}

}  // namespace onnx_fp8
