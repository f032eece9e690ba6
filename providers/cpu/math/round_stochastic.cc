// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/round_stochastic.h"

#include <bit>

#include "providers/cpu/math/draw_runs.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {

void RoundStochastic(const float* x, uint16_t* y, int64_t first, int64_t n,
                     const ElementPlaces& places, uint32_t key) {
  ForDrawRuns(
      first, n, places, key,
      [=](int64_t at, int64_t count, uint32_t own, uint32_t place) {
        const float* from = x + at;
        uint16_t* to = y + at;
        OnBestIsa([=] {
          for (int64_t i = 0; i < count; ++i) {
            const uint32_t draw = DrawAt(own, place + static_cast<uint32_t>(i));
            to[i] = RoundBFloat16(std::bit_cast<uint32_t>(from[i]), draw);
          }
        });
      });
}

}  // namespace onnx_fp8
