// SPDX-License-Identifier: Apache-2.0
//
// Reductions. dy and y get the rank of x (reduced axes of size 1) and are then
// broadcast.
#include <cmath>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

struct Reduction {
  Value* x;
  Value* y;   // as if keepdims
  Value* dy;  // as if keepdims
  std::vector<int64_t> axes;
  int64_t count;  // elements of x per element of y
};

Reduction Of(C& c) {
  Reduction r{c.In(0), nullptr, nullptr, {}, 1};
  r.axes = ConstantInts(c, 1, "axes");
  if (r.axes.empty() && c.node.Int("noop_with_empty_axes", 0) == 0) {
    r.axes = Range(0, r.x->rank());
  }
  r.axes = NormalizeAxes(r.axes, r.x->rank(), c.node.Where());
  Shape kept = *r.x->shape;
  for (int64_t axis : r.axes) {
    r.count *= kept[static_cast<size_t>(axis)];
    kept[static_cast<size_t>(axis)] = 1;
  }
  r.y = c.b.Reshape(c.Out(0), kept);
  r.dy = c.b.Reshape(c.Dy(), kept);
  return r;
}

Value* Sum(C& c) { return ExpandTo(c.b, Of(c).dy, *c.In(0)->shape); }

Value* ReduceMean(C& c) {
  Reduction r = Of(c);
  if (r.count == 0) return Filled(c.b, 0, r.x, *r.x->shape);
  double share = 1.0 / static_cast<double>(r.count);
  return ExpandTo(c.b, c.b.Mul(r.dy, c.b.Scalar(share, r.dy)), *r.x->shape);
}

// Equal shares to all elements that equal the extremum.
Value* ReduceExtremum(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  Value* hits = ZeroOne(b, b.Op("Equal", {r.x, r.y}), r.dy);
  return b.Mul(hits, b.Div(r.dy, b.ReduceSum(hits, r.axes, true)));
}

// The product of the other elements, also if some elements are 0.
Value* Prod(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  if (r.axes.empty()) return r.dy;  // ReduceProd would take all axes
  Value *zero = b.Scalar(0, r.x), *one = b.Scalar(1, r.x);
  Value* is_zero = b.Op("Equal", {r.x, zero});
  Value* zeros = b.ReduceSum(ZeroOne(b, is_zero, r.x), r.axes, true);
  Value* safe = b.Op("Where", {is_zero, one, r.x});
  Value* product = b.Op("ReduceProd", {safe, b.Ints(r.axes)});
  Value* at_zero = Masked(b, b.Op("Equal", {zeros, one}), product);
  Value* elsewhere =
      Masked(b, b.Op("Equal", {zeros, zero}), b.Div(product, safe));
  return b.Mul(r.dy, b.Op("Where", {is_zero, at_zero, elsewhere}));
}

Value* L1(C& c) {
  Reduction r = Of(c);
  return c.b.Mul(r.dy, c.b.Op("Sign", {r.x}));
}

// x / y, and 0 where y is 0.
Value* L2(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  Value* positive = b.Op("Greater", {r.y, b.Scalar(0, r.y)});
  return b.Mul(r.x, Masked(b, positive, b.Div(r.dy, r.y)));
}

Value* LogSum(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  Value* sum = b.ReduceSum(r.x, r.axes, true);
  return ExpandTo(b, b.Div(r.dy, sum), *r.x->shape);
}

// exp(x - y); a row of only -inf has no slope.
Value* LogSumExp(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  Value* empty = b.Op("Equal", {r.y, b.Scalar(-HUGE_VAL, r.y)});
  Value* y = b.Op("Where", {empty, b.Scalar(0, r.y), r.y});
  return b.Mul(r.dy, b.Op("Exp", {b.Sub(r.x, y)}));
}

Value* SumSquare(C& c) {
  Builder& b = c.b;
  Reduction r = Of(c);
  return b.Mul(r.x, b.Mul(r.dy, b.Scalar(2, r.dy)));
}

}  // namespace

void RegisterReduceGradients(GradientRegistry& r) {
  r.Add("ReduceL1", Unary<L1>);
  r.Add("ReduceL2", Unary<L2>);
  r.Add("ReduceLogSum", Unary<LogSum>);
  r.Add("ReduceLogSumExp", Unary<LogSumExp>);
  r.Add("ReduceMax", Unary<ReduceExtremum>);
  r.Add("ReduceMean", Unary<ReduceMean>);
  r.Add("ReduceMin", Unary<ReduceExtremum>);
  r.Add("ReduceProd", Unary<Prod>);
  r.Add("ReduceSum", Unary<Sum>);
  r.Add("ReduceSumSquare", Unary<SumSquare>);
}

}  // namespace onnx_fp8
