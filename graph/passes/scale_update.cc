// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/scale_update.h"

#include "graph/builder.h"

namespace onnx_fp8 {

Value* AmaxVector(Graph& graph, const Fp8Plan& plan) {
  if (plan.labels.empty()) return nullptr;
  Builder b(graph, "fp8.");
  std::vector<Value*> rows;
  for (const ScaleSlot& slot : plan.slots) {
    rows.push_back(slot.amax ? b.Reshape(slot.amax, {1})
                             : b.Constant(Tensor::Zeros(DType::kFloat, {1})));
  }
  for (Value* amax : plan.amaxes) rows.push_back(b.Reshape(amax, {1}));
  return b.Op("Concat", rows, {{"axis", int64_t{0}}});
}

void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok) {
  Builder b(graph, "fp8.");
  if (!plan.amaxes.empty()) {
    auto n = static_cast<int64_t>(plan.slots.size());
    amax = b.Op("Slice", {amax, b.Ints({0}), b.Ints({n})});
  }
  std::vector<Value*> next =
      b.Ops("UpdateScale", {amax, plan.history, plan.scale, plan.q_max, ok}, 2,
            {{"most_recent", int64_t{recipe.most_recent}},
             {"margin", static_cast<float>(recipe.margin)}},
            kDomain);
  Value* states[] = {plan.history, plan.scale};
  for (size_t i : {0, 1}) {
    graph.Rename(next[i], graph.FreshName(states[i]->name + ".next"));
    graph.state.push_back({states[i], next[i]});
  }
}

}  // namespace onnx_fp8
