// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

namespace onnx_fp8 {

// x as a To by C's rules, but a float outside an integer's range (undefined in
// C) becomes the nearest bound, and NaN becomes 0.
template <typename To, typename From>
To SaturatingCast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_integral_v<To> &&
                       std::is_floating_point_v<From>) {
    constexpr To kMin = std::numeric_limits<To>::min();
    constexpr To kMax = std::numeric_limits<To>::max();
    if (x != x) return 0;
    if (x <= static_cast<From>(kMin)) return kMin;
    if (x >= static_cast<From>(kMax)) return kMax;
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace onnx_fp8
