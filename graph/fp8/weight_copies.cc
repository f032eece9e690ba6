// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/weight_copies.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "graph/copy_node.h"
#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "graph/passes/dead_code.h"

namespace onnx_fp8 {
namespace {

// What moves into the new graph.
struct Moves {
  bool gathers;     // gathers, too
  bool codes_only;  // of a whole step, whose state all counts
};

class Splitter {
 public:
  Splitter(Graph& graph, Moves moves) : graph_(graph), moves_(moves) {}

  std::unique_ptr<Graph> Run() {
    std::vector<Node*> alone, moved;
    std::unordered_set<const Value*> known, changing;
    if (!moves_.codes_only) {
      for (const StateBinding& b : graph_.state) changing.insert(b.state);
    }
    for (Node& node : graph_.nodes()) {
      if (!DependsOnStateAlone(node, known) || ReadsAny(node, changing)) {
        continue;
      }
      // A gather that stays keeps the copies of its result here, too.
      if (IsGather(node) && !moves_.gathers) continue;
      alone.push_back(&node);
      known.insert(node.outputs().begin(), node.outputs().end());
      if (IsMoved(node)) moved.push_back(&node);
    }
    if (moved.empty()) return nullptr;
    copies_ = std::make_unique<Graph>();
    copies_->name = graph_.name;
    copies_->file = graph_.file;
    copies_->opset = graph_.opset;
    CopyAll(moved);
    // Readers come first. A value that only moved nodes read, directly or
    // through other nodes, then stays in the new graph.
    for (Node* node : alone | std::views::reverse) {
      if (!moved.empty() && moved.back() == node) {
        Replace(node, *copied_.at(node));
        moved.pop_back();
      } else if (IsUnread(*node)) {
        graph_.RemoveNode(node);
      }
    }
    RemoveDeadCode(graph_);
    return std::move(copies_);
  }

 private:
  static bool IsGather(const Node& node) {
    return FactsOf(node).collective == Collective::kAllGather;
  }

  // REQUIRES: the node depends on state alone.
  bool IsMoved(const Node& node) const {
    const OpKind kind = FactsOf(node).kind;
    if (kind == OpKind::kQuantize) return true;
    if (!moves_.codes_only) return IsCollective(node) || kind == OpKind::kRound;
    return IsCollective(node) &&
           (!IsGather(node) || IsFloat8(node.out(0)->dtype));
  }

  bool IsUnread(const Node& node) const {
    return std::ranges::all_of(node.outputs(), [&](const Value* value) {
      return !value || (value->uses.empty() && !IsReturned(graph_, value));
    });
  }

  // Removes the node: its results become inputs, which the copy computes.
  void Replace(Node* node, const Node& copy) {
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* old = node->out(i);
      if (!old || (old->uses.empty() && !IsReturned(graph_, old))) continue;
      copies_->outputs.push_back(copy.out(i));
      Value* input =
          graph_.AddInput(graph_.FreshName(old->name), old->dtype, old->shape);
      input->narrow = old->narrow;
      graph_.ReplaceUses(old, input);
      renamed_.push_back({input, old->name});
    }
    graph_.RemoveNode(node);
    for (auto& [input, name] : renamed_) graph_.Rename(input, name);
    renamed_.clear();
  }

  // Ranks with other batches have another order of nodes; all make the codes in
  // the order of their names.
  void CopyAll(std::vector<Node*> moved) {
    const auto name = [](const Node* node) {
      const Value* first = FirstResult(*node);
      return first ? first->name : std::string();
    };
    if (moves_.codes_only) std::ranges::sort(moved, {}, name);
    for (const Node* node : moved) Copy(*node);
  }

  // The value in the new graph. REQUIRES: its producer is copied.
  Value* Copied(const Value* value) {
    if (!value) return nullptr;
    if (Value* made = copies_->Find(value->name)) return made;
    Value* made = copies_->AddInitializer(value->name, value->data);
    made->role = value->role;
    return made;
  }

  // The copy of a node, together with all nodes on which it depends; the one
  // that is there already, if another node reads it.
  Node* Copy(const Node& wanted) {
    for (const Node* node : NodesTo(wanted, &done_)) {
      copied_[node] = MakeCopy(*node);
    }
    return copied_.at(&wanted);
  }

  Node* MakeCopy(const Node& node) {
    std::vector<Value*> inputs;
    for (const Value* value : node.inputs()) inputs.push_back(Copied(value));
    std::vector<std::string> names;
    for (const Value* out : node.outputs()) {
      names.push_back(out ? out->name : "");
    }
    Node* copy = CopyNode(*copies_, node, inputs, names);
    // Ranks with other batches have other buckets, and a call of several
    // gathers could not write into state.
    if (moves_.codes_only) copy->attributes.erase("bucket");
    return copy;
  }

  Graph& graph_;
  const Moves moves_;
  std::unique_ptr<Graph> copies_;
  std::unordered_map<const Node*, Node*> copied_;
  std::unordered_set<const Node*> done_;  // the nodes that are copied
  std::vector<std::pair<Value*, std::string>> renamed_;
};

}  // namespace

Value* AddWeightCopy(Graph& graph, const std::string& name, const Value& like) {
  Value* state =
      graph.AddInitializer(name, Tensor::Zeros(like.dtype, *like.shape));
  state->role = Role::kWeightCopy;
  return state;
}

std::unique_ptr<Graph> SplitWeightCopies(Graph& graph, bool gathers) {
  return Splitter(graph, {.gathers = gathers, .codes_only = false}).Run();
}

std::unique_ptr<Graph> SplitWeightCodes(Graph& graph) {
  return Splitter(graph, {.gathers = true, .codes_only = true}).Run();
}

}  // namespace onnx_fp8
