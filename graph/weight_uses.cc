// SPDX-License-Identifier: Apache-2.0
#include "graph/weight_uses.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

// Whether the node takes rows of a matrix. (Another Gather takes one part of a
// weight that holds several.)
bool LooksUpRows(const Node& node) {
  const Value *table = node.in(0), *rows = node.in(1);
  return FactsOf(node).form == OpForm::kGather && table->shape &&
         table->rank() == 2 && rows->shape && rows->rank() > 0;
}

// How the node uses operand i, which meets data.
WeightUse UseAt(const Node& node, size_t i) {
  const OpFacts& facts = FactsOf(node);
  if (facts.form == OpForm::kGather) {
    return i == 0 ? WeightUse::kTable : WeightUse::kOther;
  }
  if (facts.kind == OpKind::kNorm) return WeightUse::kNorm;
  if (HasSlot(facts.weights, i)) return WeightUse::kLayer;
  const bool adds = node.Is("Add") || node.Is("Sub") || node.Is("Sum");
  if (facts.weights != 0 || adds) return WeightUse::kBias;
  return facts.form == OpForm::kElementwise ? WeightUse::kScale
                                            : WeightUse::kOther;
}

// Values of one graph that depend on no data, with the parameters from which
// they are computed.
using Fixed = std::unordered_map<const Value*, Names>;

class UseFinder {
 public:
  explicit UseFinder(std::map<std::string, WeightUse>* uses) : uses_(*uses) {}

  // `outer`: of the graph around this one, by name.
  void Visit(const Graph& graph, const std::map<std::string, Names>& outer) {
    Fixed fixed;
    for (const Value* value : graph.Initializers()) {
      if (value->is_input && value->role == Role::kNone) continue;
      Names& names = fixed[value];
      if (value->role != Role::kParameter) continue;
      names = {value->name};
      uses_.try_emplace(value->name, WeightUse::kNone);
    }
    for (const Node& node : graph.nodes()) {
      for (const Value* value : node.inputs()) {
        const bool captured =
            value && !value->producer && outer.contains(value->name);
        if (captured) fixed.try_emplace(value, outer.at(value->name));
      }
      Visit(graph, node, &fixed);
    }
  }

 private:
  void Visit(const Graph& graph, const Node& node, Fixed* fixed) {
    if (!node.Subgraphs().empty()) return VisitBodies(graph, node, *fixed);
    Names names;
    bool meets_data = FactsOf(node).kind == OpKind::kRandom;
    ForOperands(node, [&](size_t, const Value* value) {
      auto it = fixed->find(value);
      meets_data |= it == fixed->end();
      if (it != fixed->end())
        names.insert(it->second.begin(), it->second.end());
    });
    if (meets_data) {
      ForOperands(node, [&](size_t i, const Value* value) {
        auto it = fixed->find(value);
        if (it != fixed->end()) Take(it->second, UseAt(node, i));
      });
      return;
    }
    if (!names.empty() && LooksUpRows(node)) {
      Take(names, WeightUse::kTable);
      names.clear();
    }
    for (const Value* value : node.outputs()) {
      if (value) (*fixed)[value] = names;
    }
  }

  void VisitBodies(const Graph& graph, const Node& node, const Fixed& fixed) {
    std::map<std::string, Names> outer;
    for (const Value* value : graph.CapturedBy(node)) {
      auto it = fixed.find(value);
      if (it != fixed.end()) outer[value->name] = it->second;
    }
    for (const auto& body : node.Subgraphs()) Visit(*body, outer);
    for (const Value* value : node.inputs()) {
      auto it = fixed.find(value);
      if (it != fixed.end()) Take(it->second, WeightUse::kOther);
    }
  }

  // Operands whose elements count: sizes and axes do not.
  template <typename F>
  static void ForOperands(const Node& node, F fn) {
    const Slots host = FactsOf(node).host;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (node.in(i) && !HasSlot(host, i)) fn(i, node.in(i));
    }
  }

  void Take(const Names& names, WeightUse use) {
    for (const std::string& name : names) {
      uses_[name] = std::max(uses_[name], use);
    }
  }

  std::map<std::string, WeightUse>& uses_;
};

}  // namespace

const char* Name(WeightUse use) {
  switch (use) {
    case WeightUse::kNone:
      return "unused";
    case WeightUse::kOther:
      return "others";
    case WeightUse::kScale:
      return "factors";
    case WeightUse::kBias:
      return "biases";
    case WeightUse::kNorm:
      return "of norms";
    case WeightUse::kTable:
      return "embeddings";
    case WeightUse::kLayer:
      return "of layers";
  }
  return "?";
}

std::map<std::string, WeightUse> WeightUses(const Graph& model) {
  std::map<std::string, WeightUse> uses;
  UseFinder(&uses).Visit(model, {});
  return uses;
}

}  // namespace onnx_fp8
