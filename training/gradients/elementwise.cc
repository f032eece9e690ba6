// SPDX-License-Identifier: Apache-2.0
//
// Ops of several operands that broadcast. Gradients keep the broadcast shape:
// the engine sums them down.
#include <algorithm>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

void Add(C& c) {
  for (size_t i = 0; i < c.node.inputs().size(); ++i) c.Set(i, c.Dy());
}

void Sub(C& c) {
  c.Set(0, c.Dy());
  if (c.Needs(1)) c.Set(1, c.b.Neg(c.Dy()));
}

void Mul(C& c) {
  if (c.Needs(0)) c.Set(0, c.b.Mul(c.Dy(), c.In(1)));
  if (c.Needs(1)) c.Set(1, c.b.Mul(c.Dy(), c.In(0)));
}

// y = u / v: du = dy / v, dv = -du y
void Div(C& c) {
  Value* du = c.b.Div(c.Dy(), c.In(1));
  c.Set(0, du);
  if (c.Needs(1)) c.Set(1, c.b.Neg(c.b.Mul(du, c.Out(0))));
}

// y = u - v trunc(u / v)
void Mod(C& c) {
  c.Set(0, c.Dy());
  if (!c.Needs(1)) return;
  Value* quotient =
      c.b.Op("Round", {c.b.Div(c.b.Sub(c.In(0), c.Out(0)), c.In(1))});
  c.Set(1, c.b.Neg(c.b.Mul(c.Dy(), quotient)));
}

void Mean(C& c) {
  size_t n = c.node.inputs().size();
  Value* dx = c.b.Mul(c.Dy(), c.b.Scalar(1.0 / static_cast<double>(n), c.Dy()));
  for (size_t i = 0; i < n; ++i) c.Set(i, dx);
}

bool HoldsZero(const Value* v) {
  if (!v->is_constant() || v->data.size() > 4096) return true;
  for (int64_t i = 0; i < v->data.size(); ++i) {
    if (DoubleAt(v->data, i) == 0) return true;
  }
  return false;
}

// d x^p / dx = p x^(p-1), and 0 where p is 0: 0 · 0^-1 would be NaN.
Value* PowBase(C& c) {
  Builder& b = c.b;
  Value *x = c.In(0), *p = c.In(1);
  if (p->is_constant() && p->data.size() == 1 && DoubleAt(p->data, 0) == 2) {
    return b.Mul(c.Dy(), b.Mul(x, b.Scalar(2, x)));
  }
  Value* less_one = b.Sub(p, b.Scalar(1, p));
  Value* slope = b.Mul(b.Cast(p, x->dtype), b.Op("Pow", {x, less_one}));
  if (HoldsZero(p)) {
    Value* zero = b.Op("Equal", {p, b.Scalar(0, p)});
    slope = b.Op("Where", {zero, b.Scalar(0, x), slope});
  }
  return b.Mul(c.Dy(), slope);
}

// d x^p / dp = y ln x, and 0 for x = 0, where y is 0. (For p < 0 y is infinite
// there: the product is NaN, as it should be.)
Value* PowExponent(C& c) {
  Builder& b = c.b;
  Value *x = c.In(0), *p = c.In(1);
  Value* slope = b.Mul(c.Out(0), b.Op("Log", {x}));
  Value* flat = b.Op("And", {b.Op("Equal", {x, b.Scalar(0, x)}),
                             b.Op("GreaterOrEqual", {p, b.Scalar(0, p)})});
  slope = b.Op("Where", {flat, b.Scalar(0, x), slope});
  return b.Cast(b.Mul(c.Dy(), slope), p->dtype);
}

void Pow(C& c) {
  if (c.Needs(0)) c.Set(0, PowBase(c));
  if (c.Needs(1)) c.Set(1, PowExponent(c));
}

// Never dy · mask: an infinite dy of the other branch would become NaN.
void Where(C& c) {
  Value* zero = c.b.Scalar(0, c.Dy());
  if (c.Needs(1)) c.Set(1, c.b.Op("Where", {c.In(0), c.Dy(), zero}));
  if (c.Needs(2)) c.Set(2, c.b.Op("Where", {c.In(0), zero, c.Dy()}));
}

// Max and Min: equal shares to all operands that equal the result.
void Extremum(C& c) {
  Builder& b = c.b;
  size_t n = c.node.inputs().size();
  if (n == 1) return c.Set(0, c.Dy());
  std::vector<Value*> hits;
  for (size_t i = 0; i < n; ++i) {
    Value* hit = ZeroOne(b, b.Op("Equal", {c.In(i), c.Out(0)}), c.Dy());
    hits.push_back(hit);
  }
  Value* share = b.Div(c.Dy(), b.Op("Sum", hits));
  for (size_t i = 0; i < n; ++i) {
    if (c.Needs(i)) c.Set(i, b.Mul(share, hits[i]));
  }
}

// y = min(max(x, low), high)
void Clip(C& c) {
  Builder& b = c.b;
  Value *x = c.In(0), *low = c.In(1), *high = c.In(2);
  auto is = [&](const char* op, Value* u, Value* v) {
    return u && v ? b.Op(op, {u, v}) : nullptr;
  };
  auto where_all = [&](Value* first, Value* second) {
    Value* both = !first    ? second
                  : !second ? first
                            : b.Op("And", {first, second});
    return both ? Masked(b, both, c.Dy()) : c.Dy();
  };
  if (c.Needs(0)) {
    c.Set(0,
          where_all(is("GreaterOrEqual", x, low), is("LessOrEqual", x, high)));
  }
  if (c.Needs(1)) {
    c.Set(1, where_all(is("Less", x, low), is("LessOrEqual", low, high)));
  }
  if (c.Needs(2)) {
    Value* raised = low ? b.Op("Max", {x, low}) : x;
    c.Set(2, where_all(is("Greater", raised, high), nullptr));
  }
}

// y = mask x / (1 - ratio) while training, x otherwise.
Value* Dropout(C& c) {
  Builder& b = c.b;
  Value *ratio = c.In(1), *training = c.In(2);
  if (!training) return c.Dy();
  if (training->is_constant() && IntAt(training->data, 0) == 0) return c.Dy();
  Value* mask = NeedOutput(c, 1, "mask");
  Value* one = b.Scalar(1, c.Dy());
  Value* scale;
  if (!ratio || ratio->is_constant()) {
    scale = b.Scalar(1 / (1 - (ratio ? DoubleAt(ratio->data, 0) : 0.5)), one);
  } else {
    scale = b.Op("Reciprocal", {b.Sub(one, b.Cast(ratio, one->dtype))});
  }
  if (!training->is_constant()) scale = b.Op("Where", {training, scale, one});
  return Masked(b, mask, b.Mul(c.Dy(), scale));
}

// y is the rounded x.
void StraightThrough(C& c) {
  if (c.Needs(1)) c.Set(1, Masked(c.b, c.In(2), c.Dy()));
}

}  // namespace

void RegisterElementwiseGradients(GradientRegistry& r) {
  r.Add("Add", Add);
  r.Add("Clip", Clip);
  r.Add("StraightThrough", StraightThrough, kDomain);
  r.Add("Div", Div);
  r.Add("Dropout", Unary<Dropout>);
  r.Add("Max", Extremum);
  r.Add("Mean", Mean);
  r.Add("Min", Extremum);
  r.Add("Mod", Mod);
  r.Add("Mul", Mul);
  r.Add("Pow", Pow);
  r.Add("Sub", Sub);
  r.Add("Sum", Add);
  r.Add("Where", Where);
}

}  // namespace onnx_fp8
