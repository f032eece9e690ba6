// SPDX-License-Identifier: Apache-2.0
#include "training/step/unused_parameters.h"

#include <unordered_set>

#include "training/step/gradients.h"

namespace onnx_fp8 {
namespace {

// Whether the gradient of a result may go on to the node's operands.
bool PassesGradient(const Node& node) {
  return Gradients().Find(node.domain, node.op) != NoGradient;
}

bool IsCode(const Value* value) {
  return !value->is_sequence && value->dtype != DType::kUndefined &&
         !IsFloat(value->dtype);
}

}  // namespace

std::set<std::string> UnusedParameters(
    const Graph& graph, const std::vector<std::string>& outputs) {
  std::unordered_set<const Value*> reached;
  std::vector<const Value*> open;
  auto reach = [&](const Value* value) {
    if (value && reached.insert(value).second) open.push_back(value);
  };
  for (const std::string& name : outputs) reach(graph.Find(name));
  while (!open.empty()) {
    const Node* node = open.back()->producer;
    open.pop_back();
    if (!node || !PassesGradient(*node)) continue;
    // Weights may be behind the codes that a DequantizeLinear reads.
    bool codes =
        node->Is("DequantizeLinear") || (node->out(0) && IsCode(node->out(0)));
    for (const Value* in : node->inputs()) {
      if (in && (codes || !IsCode(in))) reach(in);
    }
    for (const Value* captured : graph.CapturedBy(*node)) reach(captured);
  }
  std::set<std::string> unused;
  for (const Value* value : graph.Initializers()) {
    bool trained = value->role == Role::kParameter;
    if (trained && !reached.contains(value)) unused.insert(value->name);
  }
  return unused;
}

}  // namespace onnx_fp8
