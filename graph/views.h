// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Ops that move, reinterpret or round elements of their first operand (all
// operands for Concat) and compute nothing: by their form, a copy, conversion,
// reshape, transpose, slice, split or concat.
bool IsViewOp(const Node& node);

// How many operands of a view, from the first, have elements in its results:
// one, or all of a Concat.
size_t MovedOperands(const Node& view);

// Whether the node's only result has the elements of its first operand, in
// their order: a reshape or a copy. Result and operand may share memory.
bool SharesMemory(const Node& node);

// The parameter (trained or frozen) that reaches `value` through views only;
// null if there is none. If a value joins several parameters, the first.
Value* WeightBehind(Value* value);

// The value that copies (Identity) make the value of: itself if there are none.
Value* BehindCopies(Value* value);
const Value* BehindCopies(const Value* value);

// A matrix used as it is or transposed.
struct Matrix {
  Value* value;
  bool transposed = false;
};

// Looks through Transposes of a 2-D value.
Matrix PeelTranspose(Value* value);

}  // namespace onnx_fp8
