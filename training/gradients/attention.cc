// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops, by q, k and v, and Rotary, by q or k.
#include "graph/attention_shape.h"
#include "graph/op_facts.h"
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// The rounded value, if there is one: then only that has to stay in memory, as
// in PyTorch.
Value* Stored(Value* y) {
  for (const Node* reader : y->uses) {
    if (FactsOf(*reader).kind == OpKind::kRound) return reader->out(0);
  }
  return y;
}

void Attention(C& c) {
  // The first operands, which have gradients; a bias and segments follow.
  size_t count = IsPacked(c.node)                     ? 1
                 : c.node.IsOurs("AttentionRelative") ? 4
                                                      : 3;
  Check(!c.Needs(count), "[", c.node.Where(),
        "] expected a bias that needs no gradient");
  std::vector<Value*> in = {c.Dy()};
  for (Value* operand : c.node.inputs()) in.push_back(operand);
  in.push_back(Stored(c.Out(0)));
  in.push_back(NeedOutput(c, 1, "lse"));
  std::vector<Value*> grads =
      c.b.Ops(c.node.op + "Grad", in, count, c.node.attributes, kDomain);
  for (size_t i = 0; i < count; ++i) c.Set(i, grads[i]);
}

void Rotary(C& c) {
  Check(!c.Needs(1) && !c.Needs(2), "[", c.node.Where(),
        "] expected cos and sin that need no gradient");
  c.Set(0, c.b.Ours("RotaryGrad", {c.Dy(), c.In(1), c.In(2)},
                    {{"heads", c.node.Int("heads", 1)}}));
}

}  // namespace

void RegisterAttentionGradients(GradientRegistry& r) {
  r.Add("Attention", Attention, kDomain);
  r.Add("AttentionBias", Attention, kDomain);
  r.Add("AttentionRelative", Attention, kDomain);
  r.Add("AttentionPacked", Attention, kDomain);
  r.Add("AttentionPackedBias", Attention, kDomain);
  r.Add("AttentionSegments", Attention, kDomain);
  r.Add("AttentionPackedSegments", Attention, kDomain);
  r.Add("Rotary", Rotary, kDomain);
}

}  // namespace onnx_fp8
