// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/primary_weights.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "graph/copy_node.h"
#include "graph/dependence.h"
#include "graph/fp8/weight_copies.h"
#include "graph/op_facts.h"
#include "graph/passes/early_updates.h"

namespace onnx_fp8 {
namespace {

// How many weights the codes among the results of the graph are made of.
size_t CountWeights(const Graph& maker) {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open;
  size_t weights = 0;
  auto reach = [&](const Value* value) {
    if (!value || !seen.insert(value).second) return;
    open.push_back(value);
    weights += value->role == Role::kParameter || value->role == Role::kFrozen;
  };
  for (const StateBinding& copy : maker.state) {
    if (IsFloat8(copy.next->dtype)) reach(copy.next);
  }
  while (!open.empty()) {
    const Node* node = open.back()->producer;
    open.pop_back();
    if (!node) continue;
    for (const Value* value : node->inputs()) reach(value);
  }
  return weights;
}

// Adds the nodes of the maker to the step, for the next values of its state.
class NextCopies {
 public:
  NextCopies(const Graph& maker, Graph& step) : maker_(maker), step_(step) {
    for (const StateBinding& binding : step.state) {
      if (binding.next != binding.state) next_[binding.state] = binding.next;
    }
    FindChanging();
  }

  // Returns the new nodes.
  std::unordered_set<const Node*> Add() {
    std::unordered_set<const Value*> wanted;
    for (const StateBinding& copy : maker_.state) {
      if (changing_.contains(copy.next)) wanted.insert(copy.next);
    }
    std::vector<const Node*> nodes;
    for (const Node& node : maker_.nodes() | std::views::reverse) {
      const bool needed = std::ranges::any_of(
          node.outputs(), [&](const Value* y) { return wanted.contains(y); });
      if (!needed) continue;
      nodes.push_back(&node);
      wanted.insert(node.inputs().begin(), node.inputs().end());
      wanted.erase(nullptr);
    }
    std::unordered_set<const Node*> added;
    for (const Node* node : nodes | std::views::reverse) {
      added.insert(AddNext(*node));
    }
    for (const StateBinding& copy : maker_.state) {
      if (!changing_.contains(copy.next)) continue;
      step_.state.push_back(
          {step_.Find(copy.state->name), made_.at(copy.next)});
    }
    return added;
  }

 private:
  // Values that differ from one step to the next.
  void FindChanging() {
    for (const Value* value : maker_.Initializers()) {
      if (next_.contains(step_.Find(value->name))) changing_.insert(value);
    }
    for (const Node& node : maker_.nodes()) {
      if (!ReadsAny(node, changing_)) continue;
      changing_.insert(node.outputs().begin(), node.outputs().end());
      changing_.erase(nullptr);  // of results that are left out
    }
  }

  Value* NextOf(const Value* value) {
    if (!value) return nullptr;
    if (value->producer) return made_.at(value);
    Value* here = step_.Find(value->name);
    if (!here) {  // only the maker has read it
      here = step_.AddInitializer(value->name, value->data);
      here->role = value->role;
    }
    auto it = next_.find(here);
    return it == next_.end() ? here : it->second;
  }

  const Node* AddNext(const Node& node) {
    std::vector<Value*> inputs;
    for (const Value* value : node.inputs()) inputs.push_back(NextOf(value));
    std::vector<std::string> names;
    for (const Value* y : node.outputs()) {
      names.push_back(y ? step_.FreshName("next." + y->name) : "");
    }
    Node* next = CopyNode(step_, node, inputs, names);
    next->part = Part::kOptimizer;
    for (size_t i = 0; i < names.size(); ++i) {
      if (next->out(i)) made_[node.out(i)] = next->out(i);
    }
    return next;
  }

  const Graph& maker_;
  Graph& step_;
  std::unordered_map<const Value*, Value*> next_;  // of the step's state
  std::unordered_set<const Value*> changing_;      // values of the maker
  std::unordered_map<const Value*, Value*> made_;  // by value of the maker
};

}  // namespace

PrimaryWeights KeepWeightCodes(
    Graph& step, const std::function<std::string(const std::string&)>& name,
    bool early) {
  PrimaryWeights kept;
  kept.maker = SplitWeightCodes(step);
  if (!kept.maker) return kept;
  Graph& maker = *kept.maker;
  for (Value* made : maker.outputs) {
    const std::string state = name("fp8_weights." + made->name);
    Value* input = step.Find(made->name);
    step.ReplaceUses(input, AddWeightCopy(step, state, *made));
    step.RemoveValue(input);
    maker.state.push_back({AddWeightCopy(maker, state, *made), made});
    kept.copies.push_back(state);
    kept.bytes += BytesOf(*made);
  }
  maker.outputs.clear();
  kept.weights = CountWeights(maker);
  const auto added = NextCopies(maker, step).Add();
  const bool communicates = std::ranges::any_of(
      added, [](const Node* node) { return IsCollective(*node); });
  if (!early || communicates) return kept;
  RunEarly(step, added);
  // A decoded weight waits with its codes for a scale that is known late.
  RunBeforeReaders(step, added);
  return kept;
}

}  // namespace onnx_fp8
