// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/pattern.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace onnx_fp8 {

std::optional<double> NumberIn(const Value* value) {
  if (!value || !value->is_constant() || value->data.size() != 1) return {};
  if (value->dtype == DType::kFloat) return *value->data.data<float>();
  if (value->dtype == DType::kDouble) return *value->data.data<double>();
  return {};
}

bool IsNumber(const Value* value, double number) {
  auto found = NumberIn(value);
  return found && std::fabs(*found - number) <= 1e-6 * std::fabs(number);
}

bool IsReadOnce(const Graph& graph, const Value* value) {
  return value->uses.size() == 1 &&
         std::ranges::find(graph.outputs, value) == graph.outputs.end();
}

Node* OnlyReader(const Graph& graph, const Value* value, const char* op) {
  if (!IsReadOnce(graph, value) || !value->uses[0]->Is(op)) return nullptr;
  return value->uses[0];
}

Value* OtherOperand(const Node& node, const Value* one) {
  return node.in(node.in(0) == one ? 1 : 0);
}

std::optional<std::pair<double, Value*>> FactorOf(const Node& node) {
  if (node.Is("Mul")) {
    for (size_t i : {0, 1}) {
      if (auto c = NumberIn(node.in(i))) return {{*c, node.in(1 - i)}};
    }
  }
  if (node.Is("Div")) {
    if (auto c = NumberIn(node.in(1))) return {{1 / *c, node.in(0)}};
  }
  return {};
}

void ReplaceWith(Graph& graph, Node& node, Value* value) {
  Value* old = node.out(0);
  std::string name = old->name;
  graph.ReplaceUses(old, value);
  graph.RemoveNode(&node);
  graph.Rename(value, name);
}

}  // namespace onnx_fp8
