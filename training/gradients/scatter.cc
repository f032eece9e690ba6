// SPDX-License-Identifier: Apache-2.0
//
// Writes updates u at computed places of x. A place that is written twice is
// undefined in ONNX unless there is a reduction.
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// max and min: equal shares to the element of x and to all updates that equal
// the result.
void ScatterExtremum(C& c, int64_t axis) {
  Builder& b = c.b;
  Value *x = c.In(0), *at = c.In(1), *u = c.In(2), *y = c.Out(0);
  auto read = [&](Value* from) {
    return b.Op("GatherElements", {from, at}, {{"axis", axis}});
  };
  Value* x_hit = ZeroOne(b, b.Op("Equal", {x, y}), y);
  Value* u_hit = ZeroOne(b, b.Op("Equal", {u, read(y)}), y);
  Value* hits = b.Op("ScatterElements", {x_hit, at, u_hit},
                     {{"axis", axis}, {"reduction", std::string("add")}});
  Value* share = b.Div(c.Dy(), hits);
  if (c.Needs(0)) c.Set(0, b.Mul(share, x_hit));
  if (c.Needs(2)) c.Set(2, b.Mul(read(share), u_hit));
}

void ScatterElements(C& c) {
  Builder& b = c.b;
  int64_t axis = c.node.Int("axis", 0);
  std::string reduction = c.node.String("reduction", "none");
  if (reduction == "max" || reduction == "min") {
    return ScatterExtremum(c, axis);
  }
  if (c.Needs(0)) {
    if (reduction == "add") {
      c.Set(0, c.Dy());
    } else {  // dy times the factor of x; 0 if an update replaced x
      Value* by =
          reduction == "mul" ? c.In(2) : Filled(b, 0, c.Dy(), *c.In(2)->shape);
      c.Set(0, b.Op("ScatterElements", {c.Dy(), c.In(1), by},
                    {{"axis", axis}, {"reduction", reduction}}));
    }
  }
  if (c.Needs(2)) {
    Check(reduction != "mul", "[", c.node.Where(),
          "] expected reduction none, add, max or min for the gradient of the "
          "updates, got mul");
    c.Set(2, b.Op("GatherElements", {c.Dy(), c.In(1)}, {{"axis", axis}}));
  }
}

void ScatterND(C& c) {
  Builder& b = c.b;
  std::string reduction = c.node.String("reduction", "none");
  Check(reduction == "none" || reduction == "add", "[", c.node.Where(),
        "] expected reduction none or add for the gradient, got ", reduction);
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
