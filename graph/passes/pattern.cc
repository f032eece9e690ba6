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

Value* SquareOf(const Value* square) {
  const Node* node = square->producer;
  if (!node) return nullptr;
  bool power = node->Is("Pow") && IsNumber(node->in(1), 2);
  bool product = node->Is("Mul") && node->in(0) == node->in(1);
  return power || product ? node->in(0) : nullptr;
}

Value* WithoutNaN(const Graph& graph, Value* p) {
  if (p->uses.size() != 2 || IsReturned(graph, p)) return p;
  for (const Node* test : p->uses) {
    if (!test->Is("IsNaN")) continue;
    const Node* choice = OnlyReader(graph, test->out(0), "Where");
    if (choice && choice->in(0) == test->out(0) && IsNumber(choice->in(1), 0) &&
        choice->in(2) == p) {
      return choice->out(0);
    }
  }
  return p;
}

std::optional<std::pair<double, Value*>> FactorOf(const Node& node) {
  bool divides = node.Is("Div");
  if (!divides && !node.Is("Mul")) return {};
  for (size_t i : {1, 0}) {
    if (divides && i == 0) break;
    auto c = NumberIn(node.in(i));
    Value* other = node.in(1 - i);
    // A constant of more axes would give its axes to the result.
    if (c && other->shape == node.out(0)->shape) {
      return {{divides ? 1 / *c : *c, other}};
    }
  }
  return {};
}

namespace {

// The value of four axes whose last two a Transpose between two Reshapes has
// swapped to make x, as exporters write it for a stack of matrices; else null.
Value* BeforeSwap(const Value* x) {
  const Node* split = x->producer;
  if (!split || !split->Is("Reshape") || x->rank() != 4) return nullptr;
  const Node* turn = split->in(0)->producer;
  if (!turn || !turn->Is("Transpose") ||
      turn->Ints("perm") != std::vector<int64_t>{0, 2, 1}) {
    return nullptr;
  }
  const Node* join = turn->in(0)->producer;
  if (!join || !join->Is("Reshape") || join->in(0)->rank() != 4) return nullptr;
  Value* from = join->in(0);
  int64_t a = from->dim(0), b = from->dim(1), m = from->dim(2),
          n = from->dim(3);
  bool swaps = *join->out(0)->shape == Shape{a * b, m, n} &&
               *x->shape == Shape{a, b, n, m};
  return swaps ? from : nullptr;
}

}  // namespace

Value* Permuted(Builder& b, Value* x, std::vector<int64_t> perm) {
  for (;;) {
    const Node* outer = x->producer;
    if (Value* from = BeforeSwap(x)) {
      for (int64_t& axis : perm) axis = axis < 2 ? axis : 5 - axis;
      x = from;
      continue;
    }
    if (!outer || !outer->Is("Transpose")) break;
    std::vector<int64_t> before = outer->Ints("perm");
    if (before.size() != perm.size()) break;
    for (int64_t& axis : perm) axis = before[static_cast<size_t>(axis)];
    x = outer->in(0);
  }
  return b.Transpose(x, perm);
}

Value* HeadsLast(Builder& b, Value* x) {
  Value* y = Permuted(b, x, {0, 2, 1, 3});
  return b.Reshape(y, {y->dim(0), y->dim(1), y->dim(2) * y->dim(3)});
}

FixedValues::FixedValues(const Graph& graph) {
  for (const Value* value : graph.Values()) {
    if (value->producer) continue;
    bool fixed =
        value->is_initializer()
            ? value->role == Role::kNone || value->role == Role::kFrozen
            : value->is_input && !IsFloat(value->dtype);
    if (fixed) names_.insert(value->name);
  }
  for (const Node& node : graph.nodes()) {
    bool fixed =
        std::ranges::all_of(node.inputs(),
                            [&](const Value* v) { return !v || Has(v); }) &&
        graph.CapturedBy(node).empty();
    if (!fixed) continue;
    for (const Value* value : node.outputs()) {
      if (value) names_.insert(value->name);
    }
  }
}

void ReplaceWith(Graph& graph, Node& node, Value* value) {
  Value* old = node.out(0);
  std::string name = old->name;
  graph.ReplaceUses(old, value);
  graph.RemoveNode(&node);
  graph.Rename(value, name);
}

}  // namespace onnx_fp8
