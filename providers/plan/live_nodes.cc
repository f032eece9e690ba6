// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/live_nodes.h"

#include <vector>

#include "base/check.h"

namespace onnx_fp8 {

std::unordered_set<const Node*> FindLive(
    const Graph& graph, std::unordered_set<const Value*>* read) {
  std::unordered_set<const Node*> live;
  std::vector<const Value*> todo(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) {
    Check(binding.state->is_initializer(), "[value ", binding.state->name,
          "] expected state that is an initializer");
    todo.push_back(binding.next);
  }
  while (!todo.empty()) {
    const Value* value = todo.back();
    todo.pop_back();
    if (!read->insert(value).second) continue;
    const Node* node = value->producer;
    if (!node) {
      Check(value->is_input || value->is_initializer(), "[value ", value->name,
            "] expected a producer, got none");
      continue;
    }
    if (!live.insert(node).second) continue;
    for (const Value* input : node->inputs()) {
      if (input) todo.push_back(input);
    }
  }
  return live;
}

}  // namespace onnx_fp8
