// SPDX-License-Identifier: Apache-2.0
#include "graph/needed_when.h"

#include <algorithm>
#include <unordered_set>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

bool IsChoice(const Node& node) {
  const Value* flag =
      FactsOf(node).kind == OpKind::kChoice ? node.in(0) : nullptr;
  return flag && !flag->is_constant() && flag->concrete() &&
         NumElements(*flag->shape) == 1;
}

// Whether there is a Where by a flag, and every node comes after its operands.
bool MayHaveConditions(const Graph& graph) {
  if (std::ranges::none_of(graph.nodes(), IsChoice)) return false;
  std::unordered_set<const Node*> done;
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.inputs()) {
      if (value && value->producer && !done.contains(value->producer)) {
        return false;
      }
    }
    done.insert(&node);
  }
  return true;
}

// The conditions, found so far, under which a value is needed.
class Needs {
 public:
  void Add(const Value* value, const Conditions& when) {
    if (!value) return;
    auto [it, added] = when_.emplace(value, when);
    if (!added) Intersect(&it->second, when);
  }

  // False if none of the node's outputs is needed.
  bool Of(const Node& node, Conditions* when) const {
    bool needed = false;
    for (const Value* value : node.outputs()) {
      auto it = when_.find(value);
      if (it == when_.end()) continue;
      if (needed) {
        Intersect(when, it->second);
      } else {
        *when = it->second;
      }
      needed = true;
    }
    return needed;
  }

 private:
  static void Intersect(Conditions* a, const Conditions& b) {
    std::erase_if(*a, [&](const Condition& condition) {
      return std::ranges::find(b, condition) == b.end();
    });
  }

  std::unordered_map<const Value*, Conditions> when_;
};

}  // namespace

NeededMap NeededWhen(const Graph& graph,
                     const std::vector<const Value*>& roots) {
  NeededMap result;
  if (!MayHaveConditions(graph)) return result;
  Needs needs;
  for (const Value* root : roots) needs.Add(root, {});
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const Node& node = *it;
    Conditions when;
    if (!needs.Of(node, &when)) continue;
    bool choice = IsChoice(node);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      Conditions operand = when;
      Condition taken{node.in(0), i == 1};
      if (choice && i > 0 && std::ranges::find(when, taken) == when.end()) {
        operand.push_back(taken);
      }
      needs.Add(node.in(i), operand);
    }
    if (!when.empty()) result.emplace(&node, std::move(when));
  }
  return result;
}

const Conditions& ConditionsOf(const NeededMap& needed, const Node* node) {
  static const Conditions kNone;
  auto it = node ? needed.find(node) : needed.end();
  return it == needed.end() ? kNone : it->second;
}

Value* Choose(Builder& b, const Conditions& conditions, Value* x,
              Value* otherwise) {
  for (const Condition& condition : conditions) {
    Value* flag = b.Reshape(condition.flag, {});
    x = condition.value ? b.Op("Where", {flag, x, otherwise})
                        : b.Op("Where", {flag, otherwise, x});
  }
  return x;
}

}  // namespace onnx_fp8
