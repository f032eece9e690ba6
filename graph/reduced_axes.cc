// SPDX-License-Identifier: Apache-2.0
#include "graph/reduced_axes.h"

#include <iterator>

namespace onnx_fp8 {

std::optional<std::set<int64_t>> ReducedAxes(const Node& reduce, const Value& x,
                                             const Value* axes) {
  if (axes && !axes->is_constant()) return std::nullopt;
  std::set<int64_t> reduced;
  if (axes) {
    for (int64_t axis : ToInts(axes->data)) {
      reduced.insert(NormalizeAxis(axis, x.rank(), reduce.Where()));
    }
  }
  if (reduced.empty() && reduce.Int("noop_with_empty_axes", 0) == 0) {
    for (int64_t axis = 0; axis < x.rank(); ++axis) reduced.insert(axis);
  }
  return reduced;
}

int64_t AxisBehindReduce(const Node& reduce, const std::set<int64_t>& axes,
                         int64_t kept) {
  if (reduce.Int("keepdims", 1) != 0) return kept;
  return kept - std::distance(axes.begin(), axes.lower_bound(kept));
}

}  // namespace onnx_fp8
