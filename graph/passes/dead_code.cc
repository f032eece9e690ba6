// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/dead_code.h"

#include <unordered_set>

namespace onnx_fp8 {

void RemoveDeadCode(Graph& graph) {
  std::unordered_set<const Value*> needed(graph.outputs.begin(),
                                          graph.outputs.end());
  for (const StateBinding& binding : graph.state) needed.insert(binding.next);
  for (const Value* value : graph.CapturedBySubgraphs()) needed.insert(value);
  // Against execution order every reader is seen before its producer.
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) nodes.push_back(&node);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    bool alive = false;
    for (const Value* value : (*it)->outputs()) {
      alive |= value && (!value->uses.empty() || needed.contains(value));
    }
    if (!alive) graph.RemoveNode(*it);
  }
  for (Value* value : graph.Initializers()) {
    if (value->is_constant() && value->uses.empty() &&
        !needed.contains(value)) {
      graph.RemoveValue(value);
    }
  }
}

}  // namespace onnx_fp8
