// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

int64_t Axis(C& c) {
  return NormalizeAxis(c.node.Int("axis", -1), c.In(0)->rank(), c.node.Where());
}

Value* Softmax(C& c) {
  return c.b.Ours("SoftmaxGrad", {c.Dy(), c.Out(0)}, {{"axis", Axis(c)}});
}

// dx = dy - exp(y) Σ dy
Value* LogSoftmax(C& c) {
  Builder& b = c.b;
  Value* total = b.ReduceSum(c.Dy(), {Axis(c)}, true);
  return b.Sub(c.Dy(), b.Mul(b.Op("Exp", {c.Out(0)}), total));
}

}  // namespace

void RegisterSoftmaxGradients(GradientRegistry& r) {
  r.Add("LogSoftmax", Unary<LogSoftmax>);
  r.Add("Softmax", Unary<Softmax>);
}

}  // namespace onnx_fp8
