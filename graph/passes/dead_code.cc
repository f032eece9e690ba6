// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/dead_code.h"

#include <algorithm>
#include <ranges>
#include <unordered_set>
#include <vector>

namespace onnx_fp8 {
namespace {

using Values = std::unordered_set<const Value*>;

// Live values: outputs and state depend on them.
Values LiveValues(const Graph& graph) {
  Values live;
  std::vector<const Value*> todo(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) {
    todo.push_back(binding.state);
    todo.push_back(binding.next);
  }
  std::unordered_set<const Node*> seen;
  while (!todo.empty()) {
    const Value* value = todo.back();
    todo.pop_back();
    if (!live.insert(value).second || !value->producer) continue;
    const Node& node = *value->producer;
    if (!seen.insert(&node).second) continue;
    for (const Value* input : node.inputs()) {
      if (input) todo.push_back(input);
    }
    for (const Value* value : graph.CapturedBy(node)) todo.push_back(value);
  }
  return live;
}

}  // namespace

void RemoveDeadCode(Graph& graph) {
  Values live = LiveValues(graph);
  std::vector<Node*> dead;
  for (Node& node : graph.nodes()) {
    bool needed = std::ranges::any_of(
        node.outputs(), [&](Value* value) { return live.contains(value); });
    if (!needed) dead.push_back(&node);
  }
  // Dead nodes read one another: first cut all edges, then remove all nodes,
  // the last node first, which is cheap for the use lists.
  for (Node* node : dead | std::views::reverse) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      graph.SetInput(node, i, nullptr);
    }
  }
  for (Node* node : dead) graph.RemoveNode(node);
  for (Value* value : graph.Initializers()) {
    if (!live.contains(value) && !value->is_input && !IsState(value->role)) {
      graph.RemoveValue(value);
    }
  }
}

}  // namespace onnx_fp8
