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

Value* Permuted(Builder& b, Value* x, std::vector<int64_t> perm) {
  const Node* outer = x->producer;
  if (outer && outer->Is("Reshape") && x->rank() == 4) {
    const Node* turn = outer->in(0)->producer;
    const Node* inner = turn && turn->Is("Transpose") && turn->in(0)->producer
                            ? turn->in(0)->producer
                            : nullptr;
    if (inner && inner->Is("Reshape") && inner->in(0)->rank() == 4 &&
        turn->Ints("perm") == std::vector<int64_t>{0, 2, 1}) {
      Value* from = inner->in(0);
      if (*x->shape ==
              Shape{from->dim(0), from->dim(1), from->dim(3), from->dim(2)} &&
          inner->out(0)->dim(1) == from->dim(2)) {
        for (int64_t& axis : perm) axis = axis < 2 ? axis : 5 - axis;
        return Permuted(b, from, perm);
      }
    }
  }
  if (outer && outer->Is("Transpose")) {
    std::vector<int64_t> before = outer->Ints("perm");
    if (before.size() == perm.size()) {
      for (int64_t& axis : perm) axis = before[static_cast<size_t>(axis)];
      return Permuted(b, outer->in(0), perm);
    }
  }
  return b.Transpose(x, perm);
}

Value* HeadsLast(Builder& b, Value* x) {
  Value* y = Permuted(b, x, {0, 2, 1, 3});
  return b.Reshape(y, {y->dim(0), y->dim(1), y->dim(2) * y->dim(3)});
}

bool FixedValues::Has(const Value* value) {
  auto [it, is_new] = known_.emplace(value, false);
  if (!is_new) return it->second;
  bool fixed;
  if (value->is_initializer()) {
    fixed = value->role == Role::kNone || value->role == Role::kFrozen;
  } else if (!value->producer) {
    fixed = value->is_input && !IsFloat(value->dtype);
  } else {
    const auto& in = value->producer->inputs();
    fixed =
        graph_.CapturedBy(*value->producer).empty() &&
        std::ranges::all_of(in, [&](const Value* v) { return !v || Has(v); });
  }
  return known_[value] = fixed;
}

void ReplaceWith(Graph& graph, Node& node, Value* value) {
  Value* old = node.out(0);
  std::string name = old->name;
  graph.ReplaceUses(old, value);
  graph.RemoveNode(&node);
  graph.Rename(value, name);
}

}  // namespace onnx_fp8
