// SPDX-License-Identifier: Apache-2.0
//
// Parts of bodies and inference that FP8 ops with one scale (quantize.cc) and
// with many scales (quantize_block.cc) share.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace onnx_fp8 {

// finite: |x|, or 0 where x is NaN or Inf. amax: the largest of them, or +Inf
// if any x is NaN or Inf. NaN never reaches ReduceMax (engines differ), and the
// maximum of an empty tensor (-Inf) becomes 0. The text form has no infinity,
// so Reciprocal(0) makes one.
inline constexpr char kAmaxText[] = R"(
  zero = Constant<value = float {0.0}>()
  inf = Reciprocal(zero)
  ax = Abs(x)
  nan = IsNaN(x)
  seen = Where(nan, inf, ax)
  bad = IsInf(seen)
  finite = Where(bad, zero, ax)
  seen_max = ReduceMax<keepdims = 0>(seen)
  amax = Max(seen_max, zero)
)";

// The shape of a product from its matrix `sum` and the decoded operand `af`.
// With transA it is a matrix, else it has a's leading axes. It is a slice of
// [leading axes, rows], from n·transA to n + transA, n = number of leading
// axes.
inline constexpr char kProductShapeText[] = R"(
  leading = Shape<start = 0, end = -1>(af)
  rows = Shape<start = 0, end = 1>(sum)
  columns = Shape<start = 1, end = 2>(sum)
  either = Concat<axis = 0>(leading, rows)
  count = Shape(leading)
  transposed = Constant<value_int: int = @transA>()
  from = Mul(count, transposed)
  to = Add(count, transposed)
  axis = Constant<value = int64[1] {0}>()
  head = Slice(either, from, to, axis)
  shape = Concat<axis = 0>(head, columns)
)";

void SetOutput(Node& node, size_t i, DType dtype, std::optional<Shape> shape);

// Errors: `i` is missing or of another dtype.
const Value& Operand(const Node& node, size_t i, DType dtype);

// Errors: Operand's; it is no scalar.
void CheckScalar(const Node& node, size_t i, DType dtype);

// Attribute `to`. Errors: it, or `q_max`, does not belong to an 8-bit format.
DType Float8Target(const Node& node);

// Product of all axes but the last; -1 if one is unknown.
int64_t Rows(const Shape& shape);

// Errors: `i` is not a tensor of 8-bit floats of rank 2 or more.
void CheckFloat8(const Node& node, size_t i);

// The shape of y from inputs 0 and 2. Errors: they don't fit.
void InferProduct(Node& node);

// Errors: input 4 is not a vector of y's columns.
void CheckBias(const Node& node);

}  // namespace onnx_fp8
