// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "graph/graph.h"

namespace onnx_fp8 {

// The axes that a Reduce sums over, from 0 on. `x` and `axes` stand for its
// operands 0 and 1; axes null: there is no operand 1. nullopt: the axes are not
// constant. Errors: an axis outside of x.
std::optional<std::set<int64_t>> ReducedAxes(const Node& reduce, const Value& x,
                                             const Value* axes);

// The axis of the result that axis `kept` of x becomes. REQUIRES: the Reduce
// does not sum over it.
int64_t AxisBehindReduce(const Node& reduce, const std::set<int64_t>& axes,
                         int64_t kept);

}  // namespace onnx_fp8
