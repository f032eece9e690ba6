// SPDX-License-Identifier: Apache-2.0
//
// Helpers that gradient rules share.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "training/step/gradient_registry.h"

namespace onnx_fp8 {

// Rules of ops with one differentiable input are functions that return its
// gradient: r.Add("Neg", Unary<Neg>).
using UnaryRule = Value* (*)(GradientContext& c);

template <UnaryRule Rule>
void Unary(GradientContext& c) {
  if (c.Needs(0)) c.Set(0, Rule(c));
}

// `x` itself if it already has that shape.
Value* ExpandTo(Builder& b, Value* x, const Shape& shape);

// A tensor filled with one number, of the dtype of `like`.
Value* Filled(Builder& b, double number, const Value* like, const Shape& shape);

// Where(condition, x, 0).
Value* Masked(Builder& b, Value* condition, Value* x);

// 1 where the condition is true, else 0, in the dtype of `like`.
Value* ZeroOne(Builder& b, Value* condition, const Value* like);

// Elements [begin, end) of one axis. `x` itself if that is all of it.
Value* SliceAxis(Builder& b, Value* x, int64_t axis, int64_t begin,
                 int64_t end);

// x shifted by `begin[i]`, and cut or filled with zeros to `shape`: element j
// of the result is element j - begin[i] of x along axis i.
Value* Place(Builder& b, Value* x, const std::vector<int64_t>& begin,
             const Shape& shape);

// begin, begin+1, … end-1.
std::vector<int64_t> Range(int64_t begin, int64_t end);

// The content of integer input i, or `otherwise` if it is omitted. Errors: it
// is no constant.
std::vector<int64_t> ConstantInts(const GradientContext& c, size_t i,
                                  const char* what,
                                  std::vector<int64_t> otherwise = {});

// Output i of the node, added if it has none yet.
Value* NeedOutput(GradientContext& c, size_t i, const std::string& suffix);

// `axes` with negative ones counted from the end, sorted. Errors: an axis
// outside of the rank, or twice.
std::vector<int64_t> NormalizeAxes(std::vector<int64_t> axes, int64_t rank,
                                   const std::string& where);

// The places in a list of rows to which `indices` (…, k) point, in a tensor
// whose first k axes, of `sizes`, are the rows: (…). Negative indices count
// from the end of their own axis.
Value* FlatRows(Builder& b, Value* indices, const Shape& sizes);

}  // namespace onnx_fp8
