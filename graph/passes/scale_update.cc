// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/scale_update.h"

#include "graph/builder.h"

namespace onnx_fp8 {

Value* StackAmaxes(Graph& graph, const std::vector<Value*>& amaxes) {
  Builder b(graph, "fp8.");
  std::vector<Value*> rows;
  for (Value* amax : amaxes) rows.push_back(b.Reshape(amax, {1}));
  return b.Op("Concat", rows, {{"axis", int64_t{0}}});
}

void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok) {
  Builder b(graph, "fp8.");
  std::vector<Value*> next = b.Ops(
      "UpdateScale", {amax, plan.history, plan.scale, plan.q_max, ok}, 2,
      {{"most_recent", int64_t{recipe.most_recent}},
       {"margin", static_cast<float>(recipe.margin)}},
      kDomain);
  graph.state.push_back({plan.history, next[0]});
  graph.state.push_back({plan.scale, next[1]});
}

}  // namespace onnx_fp8
