// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/frozen_codes.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/hash.h"
#include "graph/copy_node.h"
#include "graph/dependence.h"
#include "graph/fp8/weight_copies.h"
#include "graph/op_facts.h"
#include "graph/passes/dead_code.h"
#include "graph/print.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kResults[] = {"codes", "scales", "amax"};

// Copies the nodes that lead to a quantizer into a graph whose text is the same
// for all quantizers that make the same codes.
class FrozenMaker {
 public:
  FrozenMaker(const Graph& step, const Node& quantizer) {
    std::unordered_set<const Node*> done;
    nodes_ = NodesTo(quantizer, &done);
    made_.maker = std::make_shared<Graph>();
    made_.maker->file = step.file;
    made_.maker->opset = step.opset;
    CopyState();
    CopyConstants();
    for (const Node* node : nodes_) last_ = CopyOf(*node);
  }

  // Names of state begin with this hint.
  std::string Hint() const {
    const uint64_t formula = Hash(numbers_ + Print(*made_.maker));
    return Concat("frozen.", made_.weights.front(), ".", std::hex, formula,
                  ".");
  }

  // The state becomes result `i` of the quantizer.
  void AddState(size_t i, const std::string& name, const Value& like) {
    Graph& maker = *made_.maker;
    maker.state.push_back(
        {AddWeightCopy(maker, name, like), ResultOf(last_, i, like)});
    made_.copies.push_back(name);
  }

  FrozenCodes Take() { return std::move(made_); }

 private:
  // Copied before the constants, so that no fresh name takes a state's name.
  void CopyState() {
    for (const Node* node : nodes_) {
      for (const Value* value : node->inputs()) {
        if (!value || value->producer || value->role == Role::kNone) continue;
        if (copied_.contains(value)) continue;
        Value* copy = made_.maker->AddInitializer(value->name, value->data);
        copy->role = value->role;
        copied_[value] = copy;
        if (value->role != Role::kFrozen) continue;
        made_.weights.push_back(value->name);
      }
    }
  }

  void CopyConstants() {
    for (const Node* node : nodes_) {
      for (const Value* value : node->inputs()) {
        if (!value || value->producer || copied_.contains(value)) continue;
        copied_[value] = made_.maker->AddInitializer(
            made_.maker->FreshName("constant"), value->data);
        const std::string_view bytes(
            static_cast<const char*>(value->data.raw()), value->data.bytes());
        numbers_ += Concat(Hash(bytes), " ");
      }
    }
  }

  // The copy begins with its first result. Others are added when they are read.
  Node* CopyOf(const Node& node) {
    Graph& maker = *made_.maker;
    std::vector<Value*> inputs;
    for (const Value* value : node.inputs()) {
      inputs.push_back(value ? Copied(value) : nullptr);
    }
    std::vector<std::string> names(PlaceIn(node, FirstResult(node)) + 1);
    names.back() = maker.FreshName("made");
    Node* copy = CopyNode(maker, node, inputs, names);
    copy->name.clear();
    copy->metadata.clear();
    // These attributes name the first product that reads the codes, so equal
    // codes would get different hints.
    copy->attributes.erase("fqn");
    copy->attributes.erase("operand");
    copies_[&node] = copy;
    return copy;
  }

  Value* Copied(const Value* value) {
    auto known = copied_.find(value);
    if (known != copied_.end()) return known->second;
    const Node& producer = *value->producer;
    return copied_[value] = ResultOf(copies_.at(&producer),
                                     PlaceIn(producer, value), *value);
  }

  // Result `i` of a copy, which is added if no node has read it so far.
  Value* ResultOf(Node* copy, size_t i, const Value& like) {
    if (Value* result = copy->out(i)) return result;
    Graph& maker = *made_.maker;
    Value* result = maker.AddOutput(copy, i, maker.FreshName("made"));
    result->dtype = like.dtype;
    result->shape = like.shape;
    return result;
  }

  static size_t PlaceIn(const Node& node, const Value* result) {
    const auto& outputs = node.outputs();
    return static_cast<size_t>(std::ranges::find(outputs, result) -
                               outputs.begin());
  }

  std::vector<const Node*> nodes_;
  FrozenCodes made_;
  std::unordered_map<const Value*, Value*> copied_;
  std::unordered_map<const Node*, Node*> copies_;
  Node* last_ = nullptr;  // the copy of the quantizer
  std::string numbers_;   // hashes of the constants
};

std::string ResultName(size_t i) {
  return i < std::size(kResults) ? kResults[i] : Concat("result", i);
}

}  // namespace

std::vector<FrozenCodes> KeepFrozenCodes(
    Graph& step, const std::function<std::string(const std::string&)>& name) {
  const std::unordered_set<const Value*> alone = FrozenAlone(step);
  std::vector<Node*> quantizers;
  for (Node& node : step.nodes()) {
    const bool quantizes = FactsOf(node).kind == OpKind::kQuantize;
    if (quantizes && alone.contains(node.out(0))) quantizers.push_back(&node);
  }
  std::vector<FrozenCodes> all;
  // Readers come first, because a quantizer may read another one's decoded
  // codes.
  for (Node* quantizer : quantizers | std::views::reverse) {
    FrozenMaker maker(step, *quantizer);
    const std::string hint = maker.Hint();
    for (size_t i = 0; i < quantizer->outputs().size(); ++i) {
      Value* result = quantizer->out(i);
      if (!result || (result->uses.empty() && !IsReturned(step, result))) {
        continue;
      }
      const std::string own = name(hint + ResultName(i));
      Value* state = step.Find(own);
      if (!state) {
        state = AddWeightCopy(step, own, *result);
        maker.AddState(i, own, *result);
      }
      step.ReplaceUses(result, state);
    }
    FrozenCodes made = maker.Take();
    // Nothing is left to make if another quantizer makes the same codes.
    if (!made.copies.empty()) all.push_back(std::move(made));
  }
  std::ranges::stable_sort(all, {}, &FrozenCodes::weights);
  RemoveDeadCode(step);
  return all;
}

}  // namespace onnx_fp8
