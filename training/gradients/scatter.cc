// SPDX-License-Identifier: Apache-2.0
//
// Writes updates u at computed places of x. A place that is written twice is
// undefined in ONNX unless there is a reduction.
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// Elements u combined with elements of x at the places `at` of one axis, as
// ScatterElements does: y.
struct Scattered {
  Value *x, *at, *u, *y, *dy;
  int64_t axis;

  Value* Read(Builder& b, Value* from) const {
    return b.Op("GatherElements", {from, at}, {{"axis", axis}});
  }
  Value* Combine(Builder& b, const char* reduction, Value* into,
                 Value* updates) const {
    return b.Op("ScatterElements", {into, at, updates},
                {{"axis", axis}, {"reduction", std::string(reduction)}});
  }
};

struct Slopes {
  Value *x, *u;
};

// max and min: equal shares to the element of x and to all updates that equal
// the result.
Slopes OfExtremum(Builder& b, const Scattered& s) {
  Value* x_hit = ZeroOne(b, b.Op("Equal", {s.x, s.y}), s.y);
  Value* u_hit = ZeroOne(b, b.Op("Equal", {s.u, s.Read(b, s.y)}), s.y);
  Value* share = b.Div(s.dy, s.Combine(b, "add", x_hit, u_hit));
  return {b.Mul(share, x_hit), b.Mul(s.Read(b, share), u_hit)};
}

// mul: each factor gets the product of the others, also where some are 0.
Slopes OfProduct(Builder& b, const Scattered& s) {
  Value *zero = b.Scalar(0, s.x), *one = b.Scalar(1, s.x);
  auto is_zero = [&](Value* v) { return b.Op("Equal", {v, zero}); };
  auto without_zeros = [&](Value* v) {
    return b.Op("Where", {is_zero(v), one, v});
  };
  Value* zeros = s.Combine(b, "add", ZeroOne(b, is_zero(s.x), s.x),
                           ZeroOne(b, is_zero(s.u), s.x));
  Value* product = s.Combine(b, "mul", without_zeros(s.x), without_zeros(s.u));
  // dy times all factors, and times all but the only zero; else 0.
  Value* whole = b.Mul(s.dy, Masked(b, is_zero(zeros), product));
  Value* rest = b.Mul(s.dy, Masked(b, b.Op("Equal", {zeros, one}), product));
  auto of = [&](Value* v, Value* in_whole, Value* in_rest) {
    return b.Op("Where",
                {is_zero(v), in_rest, b.Div(in_whole, without_zeros(v))});
  };
  return {of(s.x, whole, rest), of(s.u, s.Read(b, whole), s.Read(b, rest))};
}

void ScatterElements(C& c) {
  Builder& b = c.b;
  std::string reduction = c.node.String("reduction", "none");
  Scattered s = {c.In(0),  c.In(1), c.In(2),
                 c.Out(0), c.Dy(),  c.node.Int("axis", 0)};
  if (reduction == "none" || reduction == "add") {
    if (c.Needs(0)) {  // 0 if an update replaced x
      Value* zeros = Filled(b, 0, c.Dy(), *c.In(2)->shape);
      c.Set(0,
            reduction == "add" ? c.Dy() : s.Combine(b, "none", c.Dy(), zeros));
    }
    if (c.Needs(2)) c.Set(2, s.Read(b, c.Dy()));
    return;
  }
  Slopes d = reduction == "mul" ? OfProduct(b, s) : OfExtremum(b, s);
  c.Set(0, d.x);
  c.Set(2, d.u);
}

// x as a list of rows, of which each update combines one. (ScatterND itself
// races in stock ONNX Runtime where places repeat.)
void ScatterRows(C& c, const std::string& reduction) {
  Builder& b = c.b;
  const Shape &x = *c.In(0)->shape, &at = *c.In(1)->shape;
  auto k = static_cast<std::ptrdiff_t>(at.back());
  Shape sizes(x.begin(), x.begin() + k), inner(x.begin() + k, x.end());
  Shape rows = {NumElements(sizes), NumElements(inner)};
  Shape updates = {NumElements(Shape(at.begin(), at.end() - 1)), rows[1]};
  Value* places = b.Reshape(FlatRows(b, c.In(1), sizes), {updates[0], 1});
  Scattered s = {b.Reshape(c.In(0), rows),    ExpandTo(b, places, updates),
                 b.Reshape(c.In(2), updates), b.Reshape(c.Out(0), rows),
                 b.Reshape(c.Dy(), rows),     0};
  Slopes d = reduction == "mul" ? OfProduct(b, s) : OfExtremum(b, s);
  c.Set(0, b.Reshape(d.x, x));
  c.Set(2, b.Reshape(d.u, *c.In(2)->shape));
}

void ScatterND(C& c) {
  Builder& b = c.b;
  std::string reduction = c.node.String("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    return ScatterRows(c, reduction);
  }
  if (c.Needs(0)) {
    Value* zeros = Filled(b, 0, c.Dy(), *c.In(2)->shape);
    c.Set(0, reduction == "add" ? c.Dy()
                                : b.Op("ScatterND", {c.Dy(), c.In(1), zeros}));
  }
  if (c.Needs(2)) c.Set(2, b.Op("GatherND", {c.Dy(), c.In(1)}));
}

}  // namespace

void RegisterScatterGradients(GradientRegistry& r) {
  r.Add("ScatterElements", ScatterElements);
  r.Add("ScatterND", ScatterND);
}

}  // namespace onnx_fp8
