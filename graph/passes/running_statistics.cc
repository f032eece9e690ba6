// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/running_statistics.h"

#include <set>

#include "graph/builder.h"

namespace onnx_fp8 {

void BindRunningStatistics(Graph& graph, Value* ok) {
  std::set<const Value*> bound;
  for (const StateBinding& binding : graph.state) bound.insert(binding.state);
  std::vector<Node*> norms;
  for (Node& node : graph.nodes()) {
    if (node.Is("BatchNormalization") && node.Int("training_mode", 0) != 0) {
      norms.push_back(&node);
    }
  }
  Builder b(graph, "statistics.");
  for (Node* node : norms) {
    for (size_t i : {1, 2}) {
      Value* state = node->in(i + 2);
      if (!state || state->role != Role::kState) continue;
      Value* next = node->out(i);
      if (!next) {
        next = graph.AddOutput(node, i, graph.FreshName(state->name + ".new"));
        next->dtype = state->dtype;
        next->shape = state->shape;
      }
      // A layer that runs twice keeps the statistics of its first run.
      if (!bound.insert(state).second) continue;
      graph.state.push_back({state, b.Op("Where", {ok, next, state})});
    }
  }
}

}  // namespace onnx_fp8
