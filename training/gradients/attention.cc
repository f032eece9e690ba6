// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops, of q, k and v.
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

void Attention(C& c) {
  Check(!c.Needs(3) && !c.Dy(1), "[", c.node.Where(),
        "] expected a bias and an lse that need no gradient");
  std::vector<Value*> in = {c.Dy()};
  for (Value* operand : c.node.inputs()) in.push_back(operand);
  in.push_back(c.Out(0));
  in.push_back(NeedOutput(c, 1, "lse"));
  Attributes attributes;
  for (const char* key : {"heads", "kv_heads", "scale", "causal"}) {
    attributes[key] = c.node.attributes.at(key);
  }
  std::vector<Value*> grads =
      c.b.Ops(c.node.op + "Grad", in, 3, attributes, kDomain);
  for (size_t i = 0; i < 3; ++i) c.Set(i, grads[i]);
}

}  // namespace

void RegisterAttentionGradients(GradientRegistry& r) {
  r.Add("Attention", Attention, kDomain);
  r.Add("AttentionBias", Attention, kDomain);
}

}  // namespace onnx_fp8
