// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnx_fp8 {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;  // finite
};

using Curve = std::vector<CurvePoint>;

// At most `most` points of the curve, which is sorted by steps: the first and
// the last one, and the lowest and the highest one of each piece between them.
// REQUIRES: most >= 4.
Curve Thinned(const Curve& curve, size_t most);

}  // namespace onnx_fp8
