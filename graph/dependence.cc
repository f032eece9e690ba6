// SPDX-License-Identifier: Apache-2.0
#include "graph/dependence.h"

#include <algorithm>

#include "graph/op_facts.h"

namespace onnx_fp8 {

bool ReadsAny(const Node& node,
              const std::unordered_set<const Value*>& values) {
  return std::ranges::any_of(node.inputs(), [&](const Value* value) {
    return values.contains(value);
  });
}

std::vector<const Node*> NodesTo(const Node& last,
                                 std::unordered_set<const Node*>* done) {
  std::vector<const Node*> nodes, open = {&last};
  while (!open.empty()) {
    const Node* node = open.back();
    const size_t before = open.size();
    for (const Value* value : node->inputs()) {
      const Node* producer = value ? value->producer : nullptr;
      if (producer && !done->contains(producer)) open.push_back(producer);
    }
    if (open.size() > before) continue;
    open.pop_back();
    if (done->insert(node).second) nodes.push_back(node);
  }
  return nodes;
}

bool DependsOnStateAlone(const Node& node,
                         const std::unordered_set<const Value*>& known) {
  return !node.inputs().empty() && node.Subgraphs().empty() &&
         FactsOf(node).kind != OpKind::kRandom &&
         std::ranges::all_of(node.inputs(), [&](const Value* value) {
           return !value || known.contains(value) ||
                  (value->is_initializer() && !value->is_input);
         });
}

std::unordered_set<const Value*> FrozenAlone(const Graph& graph) {
  std::unordered_set<const Value*> known, frozen;
  const auto may_read = [&](const Value* value) {
    return !value || known.contains(value) || value->role == Role::kNone ||
           value->role == Role::kFrozen || value->role == Role::kScale;
  };
  for (const Node& node : graph.nodes()) {
    if (!DependsOnStateAlone(node, known) || IsCollective(node) ||
        !std::ranges::all_of(node.inputs(), may_read)) {
      continue;
    }
    const bool reads = std::ranges::any_of(node.inputs(), [&](const Value* x) {
      return x && (x->role == Role::kFrozen || frozen.contains(x));
    });
    for (const Value* result : node.outputs()) {
      if (!result) continue;
      known.insert(result);
      if (reads) frozen.insert(result);
    }
  }
  return frozen;
}

Dependences::Dependences(const std::vector<Node*>& nodes) {
  std::unordered_set<const Value*> of_inputs, of_weights;
  for (const Node* node : nodes) {
    bool inputs = false, weights = false;
    for (const Value* value : node->inputs()) {
      if (!value) continue;
      inputs |= (value->is_input && !value->is_initializer()) ||
                of_inputs.contains(value);
      weights |= value->role == Role::kParameter ||
                 value->role == Role::kFrozen || of_weights.contains(value);
    }
    for (const Value* out : node->outputs()) {
      if (inputs) of_inputs.insert(out);
      if (weights) of_weights.insert(out);
    }
    if (weights) (inputs ? activations : copies).insert(node);
  }
}

}  // namespace onnx_fp8
