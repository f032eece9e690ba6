// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "onnx_fp8/shape.h"

namespace onnx_fp8 {

// A tensor seen along axes [axis, axis+count): (outer, n, inner).
struct AxisView {
  int64_t outer, n, inner;
};

inline AxisView ViewAlong(const Shape& shape, int64_t axis, int64_t count = 1) {
  std::span<const int64_t> s(shape);
  auto a = static_cast<size_t>(axis);
  auto c = static_cast<size_t>(count);
  return {NumElements(s.first(a)), NumElements(s.subspan(a, c)),
          NumElements(s.subspan(a + c))};
}

}  // namespace onnx_fp8
