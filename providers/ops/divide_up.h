// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// The number of pieces of `d` that hold n. REQUIRES: n >= 0, d > 0.
constexpr int64_t DivideUp(int64_t n, int64_t d) { return (n + d - 1) / d; }

// n, rounded up to a multiple of `unit`.
constexpr int64_t RoundUp(int64_t n, int64_t unit) {
  return DivideUp(n, unit) * unit;
}

}  // namespace onnx_fp8
