// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Value* Number(C& c, double x) { return c.b.Scalar(x, c.In(0)); }

Value* Positive(C& c, Value* x) {
  return c.b.Op("Greater", {x, c.b.Scalar(0, x)});
}

// dy where x > 0, else dy · slope.
Value* Kinked(C& c, Value* slope) {
  return c.b.Op("Where",
                {Positive(c, c.In(0)), c.Dy(), c.b.Mul(c.Dy(), slope)});
}

// y > 0 is the same as x > 0, and x need not be kept.
Value* Relu(C& c) { return Masked(c.b, Positive(c, c.Out(0)), c.Dy()); }

Value* LeakyRelu(C& c) {
  return Kinked(c, Number(c, c.node.Float("alpha", 0.01f)));
}

Value* ThresholdedRelu(C& c) {
  Value* alpha = Number(c, c.node.Float("alpha", 1.0f));
  return Masked(c.b, c.b.Op("Greater", {c.In(0), alpha}), c.Dy());
}

// y = alpha (exp(x) - 1) for x < 0
Value* Elu(C& c) {
  Value* exp = c.b.Op("Exp", {c.In(0)});
  return Kinked(c, c.b.Mul(exp, Number(c, c.node.Float("alpha", 1.0f))));
}

// gamma · elu(x); the defaults are the operator's.
Value* Selu(C& c) {
  float alpha = c.node.Float("alpha", 1.67326319217681884765625f);
  float gamma = c.node.Float("gamma", 1.05070102214813232421875f);
  Value* exp = c.b.Op("Exp", {c.In(0)});
  Value* dx = Kinked(c, c.b.Mul(exp, Number(c, alpha)));
  return c.b.Mul(dx, Number(c, gamma));
}

// y = alpha (exp(x / alpha) - 1) for x < 0
Value* Celu(C& c) {
  Value* alpha = Number(c, c.node.Float("alpha", 1.0f));
  return Kinked(c, c.b.Op("Exp", {c.b.Div(c.In(0), alpha)}));
}

Value* Softplus(C& c) { return c.b.Mul(c.Dy(), c.b.Op("Sigmoid", {c.In(0)})); }

// y = x / (1 + |x|)
Value* Softsign(C& c) {
  Value* d = c.b.Add(c.b.Op("Abs", {c.In(0)}), Number(c, 1));
  return c.b.Div(c.Dy(), c.b.Mul(d, d));
}

// y = clip(alpha x + beta, 0, 1)
Value* HardSigmoid(C& c) {
  Builder& b = c.b;
  Value* inside = b.Op(
      "And", {Positive(c, c.Out(0)), b.Op("Less", {c.Out(0), Number(c, 1)})});
  Value* alpha = Number(c, c.node.Float("alpha", 0.2f));
  return Masked(b, inside, b.Mul(c.Dy(), alpha));
}

// y = x clip(x/6 + 1/2, 0, 1): y' = 0 | x/3 + 1/2 | 1
Value* HardSwish(C& c) {
  Builder& b = c.b;
  Value* x = c.In(0);
  Value* slope = b.Add(b.Mul(x, Number(c, 1.0 / 3)), Number(c, 0.5));
  Value* inner = b.Op(
      "Where", {b.Op("Less", {x, Number(c, 3)}), b.Mul(c.Dy(), slope), c.Dy()});
  return Masked(b, b.Op("Greater", {x, Number(c, -3)}), inner);
}

// y = x t, t = tanh(softplus(x)): y' = t + x (1 - t²) sigmoid(x)
Value* Mish(C& c) {
  Builder& b = c.b;
  Value* x = c.In(0);
  Value* t = b.Op("Tanh", {b.Op("Softplus", {x})});
  Value* s = b.Op("Sigmoid", {x});
  Value* dt = b.Mul(b.Sub(Number(c, 1), b.Mul(t, t)), s);
  return b.Mul(c.Dy(), b.Add(t, b.Mul(x, dt)));
}

void SwiGLU(C& c) {
  auto grads =
      c.b.Ops("SwiGLUGrad", {c.Dy(), c.In(0), c.In(1)}, 2, {}, kDomain);
  c.Set(0, grads[0]);
  c.Set(1, grads[1]);
}

Value* Silu(C& c) { return c.b.Ours("SiluGrad", {c.Dy(), c.In(0)}); }

// y = x s, s = sigmoid(alpha x): y' = s + alpha x s (1 - s)
Value* Swish(C& c) {
  Builder& b = c.b;
  Value* ax = b.Mul(c.In(0), Number(c, c.node.Float("alpha", 1.0f)));
  Value* s = b.Op("Sigmoid", {ax});
  Value* tail = b.Mul(b.Mul(ax, s), b.Sub(Number(c, 1), s));
  return b.Mul(c.Dy(), b.Add(s, tail));
}

Value* Gelu(C& c) {
  std::string form = c.node.String("approximate", "none");
  Check(form == "none" || form == "tanh", "[", c.node.Where(),
        "] expected approximate to be none or tanh, got ", form);
  return c.b.Ours(form == "tanh" ? "GeluTanhGrad" : "GeluGrad",
                  {c.Dy(), c.In(0)});
}

// y = slope x for x < 0
void PRelu(C& c) {
  Value* slope = c.In(1);
  if (c.Needs(0)) c.Set(0, Kinked(c, slope));
  if (c.Needs(1)) {
    Value* negative = c.b.Op("Less", {c.In(0), Number(c, 0)});
    c.Set(1, Masked(c.b, negative, c.b.Mul(c.Dy(), c.In(0))));
  }
}

}  // namespace

void RegisterActivationGradients(GradientRegistry& r) {
  r.Add("Celu", Unary<Celu>);
  r.Add("Elu", Unary<Elu>);
  r.Add("Gelu", Unary<Gelu>);
  r.Add("HardSigmoid", Unary<HardSigmoid>);
  r.Add("HardSwish", Unary<HardSwish>);
  r.Add("LeakyRelu", Unary<LeakyRelu>);
  r.Add("Mish", Unary<Mish>);
  r.Add("PRelu", PRelu);
  r.Add("Relu", Unary<Relu>);
  r.Add("Selu", Unary<Selu>);
  r.Add("Silu", Unary<Silu>, kDomain);
  r.Add("SwiGLU", SwiGLU, kDomain);
  r.Add("Softplus", Unary<Softplus>);
  r.Add("Softsign", Unary<Softsign>);
  r.Add("Swish", Unary<Swish>);
  r.Add("ThresholdedRelu", Unary<ThresholdedRelu>);
}

}  // namespace onnx_fp8
