// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "providers/ops/arguments.h"

namespace onnx_fp8 {

// What Scatter does with an update and the element in its place. In the order
// of the attribute's values in ReadScatterReduction.
enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };

// Combines element a and update b. A kernel of a device may call it.
template <typename T>
constexpr T Combine(ScatterReduction reduction, T a, T b) {
  // Integers wrap around.
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  auto wa = static_cast<Wide>(a), wb = static_cast<Wide>(b);
  switch (reduction) {
    case ScatterReduction::kNone:
      return b;
    case ScatterReduction::kAdd:
      return static_cast<T>(wa + wb);
    case ScatterReduction::kMul:
      return static_cast<T>(wa * wb);
    // NaN wins, as in NumPy.
    case ScatterReduction::kMax:
      return a < b || b != b ? b : a;
    case ScatterReduction::kMin:
      return b < a || b != b ? b : a;
  }
  return b;
}

// The attribute `reduction`. Errors: another value.
inline ScatterReduction ReadScatterReduction(const KernelContext& ctx) {
  return ChoiceIn<ScatterReduction>(ctx, "reduction", "none",
                                    {"none", "add", "mul", "max", "min"});
}

}  // namespace onnx_fp8
