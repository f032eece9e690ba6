// SPDX-License-Identifier: Apache-2.0
//
// y = f(x), element by element: dx = dy f'(x), computed from y if that is
// cheaper.
#include <cmath>
#include <numbers>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Value* One(C& c) { return c.b.Scalar(1, c.In(0)); }
Value* Square(C& c, Value* x) { return c.b.Mul(x, x); }

Value* Identity(C& c) { return c.Dy(); }

Value* Neg(C& c) { return c.b.Neg(c.Dy()); }

Value* Abs(C& c) { return c.b.Mul(c.Dy(), c.b.Op("Sign", {c.In(0)})); }

Value* Sqrt(C& c) {
  return c.b.Div(c.b.Mul(c.Dy(), c.b.Scalar(0.5, c.In(0))), c.Out(0));
}

Value* Exp(C& c) { return c.b.Mul(c.Dy(), c.Out(0)); }

Value* Log(C& c) { return c.b.Div(c.Dy(), c.In(0)); }

Value* Reciprocal(C& c) {
  return c.b.Neg(c.b.Mul(c.Dy(), Square(c, c.Out(0))));
}

Value* Sin(C& c) { return c.b.Mul(c.Dy(), c.b.Op("Cos", {c.In(0)})); }

Value* Cos(C& c) { return c.b.Neg(c.b.Mul(c.Dy(), c.b.Op("Sin", {c.In(0)}))); }

Value* Tan(C& c) {
  return c.b.Mul(c.Dy(), c.b.Add(Square(c, c.Out(0)), One(c)));
}

// (1 - x)(1 + x): 1 - x² loses digits near |x| = 1.
Value* OneMinusSquare(C& c, Value* x) {
  return c.b.Mul(c.b.Sub(One(c), x), c.b.Add(One(c), x));
}

Value* Asin(C& c) {
  return c.b.Div(c.Dy(), c.b.Op("Sqrt", {OneMinusSquare(c, c.In(0))}));
}

Value* Acos(C& c) { return c.b.Neg(Asin(c)); }

Value* Atan(C& c) {
  return c.b.Div(c.Dy(), c.b.Add(Square(c, c.In(0)), One(c)));
}

Value* Sinh(C& c) { return c.b.Mul(c.Dy(), c.b.Op("Cosh", {c.In(0)})); }

Value* Cosh(C& c) { return c.b.Mul(c.Dy(), c.b.Op("Sinh", {c.In(0)})); }

Value* Asinh(C& c) {
  return c.b.Div(c.Dy(), c.b.Op("Sqrt", {c.b.Add(Square(c, c.In(0)), One(c))}));
}

Value* Acosh(C& c) {
  Value* x = c.In(0);
  Value* product = c.b.Mul(c.b.Sub(x, One(c)), c.b.Add(x, One(c)));
  return c.b.Div(c.Dy(), c.b.Op("Sqrt", {product}));
}

Value* Atanh(C& c) { return c.b.Div(c.Dy(), OneMinusSquare(c, c.In(0))); }

Value* Tanh(C& c) {
  return c.b.Mul(c.Dy(), c.b.Sub(One(c), Square(c, c.Out(0))));
}

Value* Sigmoid(C& c) {
  Value* y = c.Out(0);
  return c.b.Mul(c.b.Mul(c.Dy(), y), c.b.Sub(One(c), y));
}

// erf'(x) = 2/√π exp(-x²)
Value* Erf(C& c) {
  Value* bell = c.b.Op("Exp", {c.b.Neg(Square(c, c.In(0)))});
  Value* factor = c.b.Scalar(2 * std::numbers::inv_sqrtpi, c.In(0));
  return c.b.Mul(c.Dy(), c.b.Mul(bell, factor));
}

Value* Cast(C& c) { return c.b.Cast(c.Dy(), c.In(0)->dtype); }

}  // namespace

void RegisterUnaryGradients(GradientRegistry& r) {
  r.Add("Abs", Unary<Abs>);
  r.Add("Acos", Unary<Acos>);
  r.Add("Acosh", Unary<Acosh>);
  r.Add("Asin", Unary<Asin>);
  r.Add("Asinh", Unary<Asinh>);
  r.Add("Atan", Unary<Atan>);
  r.Add("Atanh", Unary<Atanh>);
  r.Add("Cast", Unary<Cast>);
  r.Add("CastLike", Unary<Cast>);
  r.Add("Cos", Unary<Cos>);
  r.Add("Cosh", Unary<Cosh>);
  r.Add("Erf", Unary<Erf>);
  r.Add("Exp", Unary<Exp>);
  r.Add("Identity", Unary<Identity>);
  r.Add("Log", Unary<Log>);
  r.Add("Neg", Unary<Neg>);
  r.Add("Reciprocal", Unary<Reciprocal>);
  r.Add("Sigmoid", Unary<Sigmoid>);
  r.Add("Sin", Unary<Sin>);
  r.Add("Sinh", Unary<Sinh>);
  r.Add("Sqrt", Unary<Sqrt>);
  r.Add("Tan", Unary<Tan>);
  r.Add("Tanh", Unary<Tanh>);
}

}  // namespace onnx_fp8
