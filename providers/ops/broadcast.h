// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "onnx_fp8/shape.h"

namespace onnx_fp8 {

// Row-major strides over `rank` axes; `shape` has the last of them. The stride
// is 0 if an axis is repeated: it is missing or has size 1.
std::vector<int64_t> BroadcastStrides(const Shape& shape, size_t rank);

// How the elements of broadcast operands map to elements of the result.
// Adjacent axes are merged if every operand steps through them alike. So equal
// shapes and scalars give one axis, and a trailing vector gives two.
struct BroadcastPlan {
  int64_t n;                   // elements of the result
  std::vector<int64_t> sizes;  // of the merged axes, outermost first; not empty
  // strides[axis][operand] in elements; the innermost ones are 0 or 1.
  std::vector<std::vector<int64_t>> strides;
};

// REQUIRES: every operand broadcasts to `result`.
BroadcastPlan PlanBroadcast(const std::vector<Shape>& operands,
                            const Shape& result);

// Covers elements [begin, end) of the result by runs along the innermost axis.
// run(offsets, at, count) handles `count` elements of the result from element
// `at` on; operand k starts at offsets[k] and steps by plan.strides.back()[k].
template <typename Run>
void ForRuns(const BroadcastPlan& plan, int64_t begin, int64_t end, Run run) {
  if (begin >= end) return;
  size_t axes = plan.sizes.size();
  size_t operands = plan.strides[0].size();
  absl::InlinedVector<int64_t, 8> index(axes);
  absl::InlinedVector<int64_t, 8> offsets(operands, 0);
  int64_t rest = begin;
  for (size_t a = axes; a-- > 0;) {
    index[a] = rest % plan.sizes[a];
    rest /= plan.sizes[a];
    for (size_t k = 0; k < operands; ++k) {
      offsets[k] += index[a] * plan.strides[a][k];
    }
  }
  for (int64_t at = begin; at < end;) {
    int64_t count = std::min(plan.sizes[axes - 1] - index[axes - 1], end - at);
    run(offsets.data(), at, count);
    at += count;
    // Go to the next run: like an odometer, innermost axis first.
    int64_t step = count;
    for (size_t a = axes; a-- > 0;) {
      index[a] += step;
      for (size_t k = 0; k < operands; ++k) {
        offsets[k] += step * plan.strides[a][k];
      }
      if (index[a] < plan.sizes[a]) break;
      for (size_t k = 0; k < operands; ++k) {
        offsets[k] -= plan.sizes[a] * plan.strides[a][k];
      }
      index[a] = 0;
      step = 1;
    }
  }
}

}  // namespace onnx_fp8
