// SPDX-License-Identifier: Apache-2.0
//
// Collectives. The loss is one number, the same on all ranks of a group.
// - Behind an AllReduce all ranks compute alike. Each rank's dy is therefore
//   the whole gradient, and dx = dy.
// - Behind an AllGather each rank computes with its own data. Each rank's dy is
//   a part, and block r of the sum of the parts belongs to rank r's operand.
// - Behind a ReduceScatter a rank's dy is the whole gradient of its block. All
//   ranks' operands had a share in each block.
// - Behind a CopyToRanks each rank's dy is a part of the gradient, which is the
//   sum of the parts.
// A Broadcast has no rule: its gradient differs between the root and others.
#include "training/gradients/rule.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

Attributes OfGroup(const GradientContext& c) {
  return {{"group", c.node.String("group", "")},
          {"ranks", c.node.Int("ranks", 1)}};
}

Value* AllReduce(GradientContext& c) {
  if (c.node.String("reduction", "") == "sum") return c.Dy();
  // Elements that are the maximum share its gradient.
  Builder& b = c.b;
  Attributes sum = OfGroup(c);
  sum["reduction"] = std::string("sum");
  Value* largest = ZeroOne(b, b.Op("Equal", {c.In(0), c.Out(0)}), c.Dy());
  Value* count = b.Ours("AllReduce", {largest}, sum);
  return b.Div(b.Mul(c.Dy(), largest), count);
}

Value* AllGather(GradientContext& c) {
  Value* dy = c.Dy();
  const int64_t more = c.In(0)->dim(0) * c.node.Int("ranks", 1) - dy->dim(0);
  return c.b.Ours("ReduceScatter", {WithZeroRows(c.b, dy, more)}, OfGroup(c));
}

Value* ReduceScatter(GradientContext& c) {
  return c.b.Ours("AllGather", {c.Dy()}, OfGroup(c));
}

Value* CopyToRanks(GradientContext& c) {
  Attributes sum = OfGroup(c);
  sum["reduction"] = std::string("sum");
  return c.b.Ours("AllReduce", {c.Dy()}, sum);
}

}  // namespace

void RegisterCollectiveGradients(GradientRegistry& r) {
  r.Add("AllReduce", Unary<AllReduce>, kDomain);
  r.Add("AllGather", Unary<AllGather>, kDomain);
  r.Add("CopyToRanks", Unary<CopyToRanks>, kDomain);
  r.Add("ReduceScatter", Unary<ReduceScatter>, kDomain);
}

}  // namespace onnx_fp8
