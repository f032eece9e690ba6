// SPDX-License-Identifier: Apache-2.0
//
// What nodes do with the axes of their operands, as far as constants tell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

inline int64_t FromStart(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

// An element of a result depends on one element of each operand. Axes are
// aligned at the end, as broadcasting does.
bool IsElementwise(const Node& node);

// Zeros in place of elements of its operands make no result and no gradient
// infinite or NaN. (The divisor of a Div must not have any.)
bool IsFiniteAtZeros(const Node& node);

// The axes, from 0 on, that an operand lists; nothing if it is absent, empty
// or no constant.
std::optional<std::vector<int64_t>> ListedAxes(const Node& node, size_t input,
                                               int64_t rank);

// A Slice takes all of the axis, in its order.
bool LeavesAxis(const Node& slice, int64_t axis);

}  // namespace onnx_fp8
