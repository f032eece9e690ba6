// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/store_narrow.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

bool Has(const std::vector<size_t>& list, size_t i) {
  return std::ranges::find(list, i) != list.end();
}

bool IsReal(const Value* value) {
  return value && value->dtype == DType::kFloat;
}

bool Rounds(const Node& node) { return FactsOf(node).kind == OpKind::kRound; }

// A Cast from 16 bits to float, as behind the gather of a rounded weight.
bool Widens(const Node& node) {
  return node.Is("Cast") && IsHalf(node.in(0)->dtype) && IsReal(node.out(0));
}

class Narrower {
 public:
  Narrower(Graph& graph, const KernelRegistry& kernels)
      : graph_(graph), kernels_(kernels) {}

  void Run() {
    Hoist();
    for (Node& node : graph_.nodes()) FindExact(node);
    for (const auto& [value, dtype] : exact_) {
      if (IsKept(value)) Refuse(value);
    }
    for (const auto& [value, dtype] : exact_) {
      if (!refused_.contains(GroupOf(value))) value->narrow = dtype;
    }
    Absorb();
  }

 private:
  // The kernel's traits; null if it has none.
  const KernelTraits* TraitsOf(const Node& node) const {
    const KernelEntry* entry = kernels_.Find(node.domain, node.op);
    return entry && node.Subgraphs().empty() ? &entry->traits : nullptr;
  }

  static bool Moves(const KernelTraits* traits) {
    return traits && (traits->view || traits->moves);
  }

  // --- RoundTo nodes move towards the kernels that compute -------------------

  // A value from which moves make another one, and the move that reads it.
  struct Source {
    Value* value;
    Node* reader;

    bool operator==(const Source&) const = default;
  };

  // RoundTo(Move(x)) becomes Move(RoundTo(x)), if nothing else reads the
  // results between and fewer elements are rounded by nodes of their own.
  void Hoist() {
    std::vector<Node*> rounds;
    for (Node& node : graph_.nodes()) {
      if (Rounds(node)) rounds.push_back(&node);
    }
    for (Node* round : rounds) {
      Value *x = round->in(0), *y = round->out(0);
      std::vector<Source> sources;
      if (!FindSources({x, round}, sources) || sources.front().value == x ||
          IsReturned(graph_, y) || !RoundsFewer(sources, x)) {
        continue;
      }
      for (const Source& source : sources) Round(source, *round);
      graph_.ReplaceUses(y, x);
      graph_.RemoveNode(round);
    }
  }

  // The values from which moves make `first.value`; false if another node reads
  // a result of the moves.
  bool FindSources(Source first, std::vector<Source>& sources) const {
    struct Open {
      Source at;
      bool travels;  // `--gather-dtype` says in which format parameters travel
    };
    std::vector<Open> open = {{first, false}};
    while (!open.empty()) {
      auto [at, travels] = open.back();
      open.pop_back();
      Value* x = at.value;
      const Node* node = x->producer;
      if (!Moves(node ? TraitsOf(*node) : nullptr)) {
        if (travels && !CanAbsorb(at)) return false;
        if (std::ranges::count(sources, at) == 0) sources.push_back(at);
        continue;
      }
      if (!IsReadOnce(x) || node->outputs().size() != 1) return false;
      travels |= IsCollective(*node);
      const size_t before = open.size();
      for (size_t i = node->inputs().size(); i-- > 0;) {
        Value* operand = node->in(i);
        if (IsReal(operand)) open.push_back({{operand, x->producer}, travels});
      }
      if (open.size() == before) return false;
    }
    return true;
  }

  bool IsReadOnce(const Value* x) const {
    return x->uses.size() == 1 && !IsReturned(graph_, x);
  }

  // Whether the kernel that makes the source can round it for its reader.
  bool CanAbsorb(const Source& source) const {
    const Value* x = source.value;
    // What RoundTo has rounded to one dtype may be rounded to another one.
    if (!x->producer || Rounds(*x->producer)) return false;
    const KernelTraits* traits = TraitsOf(*x->producer);
    return traits && IsReadOnce(x) && Has(traits->narrow_out, PlaceOf(x));
  }

  // Whether fewer elements than x has are rounded by nodes of their own, if
  // the sources are rounded instead.
  bool RoundsFewer(const std::vector<Source>& sources, const Value* x) const {
    int64_t own = 0;
    for (const Source& source : sources) {
      if (CanAbsorb(source)) continue;
      if (!source.value->concrete()) return false;
      own += NumElements(*source.value->shape);
    }
    return own == 0 || (x->concrete() && own < NumElements(*x->shape));
  }

  static size_t PlaceOf(const Value* x) {
    const auto& outputs = x->producer->outputs();
    return static_cast<size_t>(std::ranges::find(outputs, x) - outputs.begin());
  }

  // Puts a RoundTo like `like` between the source and its reader.
  void Round(const Source& source, const Node& like) {
    auto [x, reader] = source;
    Node* round =
        graph_.AddNode("RoundTo", {x}, {graph_.FreshName(x->name + ".RoundTo")},
                       like.attributes, kDomain, reader);
    round->metadata = like.metadata;
    Value* y = round->out(0);
    y->dtype = x->dtype;
    y->shape = x->shape;
    for (size_t i = 0; i < reader->inputs().size(); ++i) {
      if (reader->in(i) == x) graph_.SetInput(reader, i, y);
    }
  }

  // --- values that are exact in 16 bits --------------------------------------

  void FindExact(const Node& node) {
    if (Rounds(node)) {
      exact_.emplace(node.out(0), static_cast<DType>(node.Int("to", 0)));
      return;
    }
    if (Widens(node)) {
      exact_.emplace(node.out(0), node.in(0)->dtype);
      return;
    }
    if (!Moves(TraitsOf(node))) return;
    Value* first = nullptr;
    for (Value* x : node.inputs()) {
      if (!IsReal(x)) continue;
      auto known = exact_.find(x);
      if (known == exact_.end()) return;
      if (!first) first = x;
      if (exact_.at(first) != known->second) return;
    }
    if (!first) return;
    DType dtype = exact_.at(first);
    for (Value* x : node.inputs()) {
      if (IsReal(x)) Join(x, first);
    }
    for (Value* y : node.outputs()) {
      if (!IsReal(y)) continue;
      exact_.emplace(y, dtype);
      Join(y, first);
    }
  }

  // Whether the value must keep its dtype.
  bool IsKept(const Value* value) const {
    if (IsReturned(graph_, value)) return true;
    return std::ranges::any_of(value->uses, [&](const Node* reader) {
      const KernelTraits* traits = TraitsOf(*reader);
      // If another operand is not exact, a move's result is not either.
      if (Moves(traits)) return !exact_.contains(FirstReal(*reader));
      if (!traits) return true;
      for (size_t i = 0; i < reader->inputs().size(); ++i) {
        if (reader->in(i) == value && !Has(traits->narrow_in, i)) return true;
      }
      return false;
    });
  }

  static Value* FirstReal(const Node& node) {
    auto it = std::ranges::find_if(node.outputs(), IsReal);
    return it == node.outputs().end() ? nullptr : *it;
  }

  // Values that are kept alike: a forest, whose roots stand for the groups.
  const Value* GroupOf(const Value* value) const {
    auto it = parent_.find(value);
    while (it != parent_.end()) {
      value = it->second;
      it = parent_.find(value);
    }
    return value;
  }

  void Join(const Value* a, const Value* b) {
    a = GroupOf(a);
    b = GroupOf(b);
    if (a != b) parent_[a] = b;
  }

  void Refuse(const Value* value) { refused_.insert(GroupOf(value)); }

  // --- kernels that round their results --------------------------------------

  void Absorb() {
    std::vector<Node*> rounds;
    for (Node& node : graph_.nodes()) {
      if (!Rounds(node)) continue;
      bool narrow = node.out(0)->narrow != DType::kUndefined;
      if (narrow && CanAbsorb({node.in(0), &node})) rounds.push_back(&node);
    }
    for (Node* round : rounds) {
      Value* x = round->in(0);
      graph_.MoveOutput(round->out(0), x->producer, PlaceOf(x));
      graph_.RemoveNode(round);
    }
  }

  Graph& graph_;
  const KernelRegistry& kernels_;
  std::unordered_map<Value*, DType> exact_;
  std::unordered_map<const Value*, const Value*> parent_;
  std::unordered_set<const Value*> refused_;  // roots
};

}  // namespace

void StoreNarrow(Graph& graph, const KernelRegistry& kernels) {
  Narrower(graph, kernels).Run();
}

}  // namespace onnx_fp8
