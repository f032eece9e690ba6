// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/shard_parameters.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "graph/passes/recompute.h"
#include "training/ranks/over_ranks.h"
#include "training/ranks/sharded_state.h"
#include "training/ranks/share_amaxes.h"

namespace onnx_fp8 {
namespace {

// A parameter, or its rounding, of which this rank has a part.
struct Parts {
  Value* part;
  Value* whole;  // has no producer, or one that will be removed
  DType wire;    // format in which its elements are exact
};

class Sharder {
 public:
  Sharder(Graph& graph, const ShardOptions& options)
      : graph_(graph), options_(options) {
    if (options.spec.what == Sharding::kParameters && options.seed) {
      backward_ = StepHalves(graph, options.seed).backward;
      RecomputeInBackward(graph, MadeOfWholes(), &backward_);
    }
    for (Node& node : graph.nodes()) {
      position_[&node] = order_.size();
      order_.push_back(&node);
      reads_matrix_.push_back(ReadsMatrix(node));
    }
  }

  void Run(ParameterGradients* gradients, bool whole_gradients) {
    for (Value* value : graph_.Initializers()) {
      auto it = options_.parameters->find(value->name);
      if (it != options_.parameters->end()) Replace(value);
    }
    ReduceAmaxes();
    for (const auto& [part, quantizer] : quantizers_) Quantize(part, quantizer);
    for (auto& [parameter, gradient] : *gradients) {
      auto it = part_.find(parameter);
      if (it == part_.end()) continue;
      if (!whole_gradients) {
        gradient = ReduceToShard(graph_, gradient, options_.mesh,
                                 After(gradient->producer));
      }
      parameter = it->second;
    }
    for (size_t i = replaced_.size(); i-- > 0;) graph_.RemoveNode(replaced_[i]);
    for (auto& [whole, part] : part_) {
      const std::string name = whole->name;
      graph_.RemoveValue(whole);
      graph_.Rename(part, name);
    }
  }

 private:
  // Nodes that compute copies of whole parameters. The copies would live from
  // the forward to the backward.
  std::unordered_set<Node*> MadeOfWholes() const {
    std::unordered_set<const Value*> parts, wholes, known;
    for (Value* value : graph_.Initializers()) {
      if (options_.parameters->contains(value->name)) parts.insert(value);
    }
    std::unordered_set<Node*> made;
    for (Node& node : graph_.nodes()) {
      if (IsCollective(node) || !DependsOnStateAlone(node, known)) continue;
      known.insert(node.outputs().begin(), node.outputs().end());
      bool whole = ReadsAny(node, wholes);
      if (!whole && ReadsAny(node, parts)) {
        whole = !RoundsPart(node) && !QuantizesPart(node);
        if (RoundsPart(node)) parts.insert(node.out(0));
      }
      if (!whole) continue;
      made.insert(&node);
      wholes.insert(node.outputs().begin(), node.outputs().end());
    }
    return made;
  }

  // Whether a reader of a parameter, or of its rounding, works on parts.
  bool QuantizesPart(const Node& reader) const {
    return QuantizesByOneScale(reader) &&
           options_.spec.gather == GatherAs::kFloat8;
  }

  bool RoundsPart(const Node& reader) const {
    return FactsOf(reader).kind == OpKind::kRound &&
           reader.in(0)->is_initializer() &&
           options_.spec.gather != GatherAs::kFloat;
  }

  // Whether the node reads a matrix of parameters.
  bool ReadsMatrix(const Node& node) const {
    return std::ranges::any_of(node.inputs(), [&](const Value* in) {
      return in && in->is_initializer() && in->rank() > 1 &&
             options_.parameters->contains(in->name);
    });
  }

  // Whether no node between the two reads a matrix of parameters, as between
  // the last layer's product and its gradient.
  bool NoneBetween(const Node* first, const Node* last) const {
    size_t i = position_.at(first) + 1;
    while (i < position_.at(last) && !reads_matrix_[i]) ++i;
    return i == position_.at(last);
  }

  Node* After(const Node* node) const {
    if (!node) return nullptr;
    size_t next = position_.at(node) + 1;
    return next < order_.size() ? order_[next] : nullptr;
  }

  void Replace(Value* whole) {
    // The shape is the same on all ranks.
    const Shape shape = ShardOf(*whole->shape, 0, options_.mesh.dp).part;
    Value* part = graph_.AddInitializer(graph_.FreshName(whole->name + ".part"),
                                        Tensor::Zeros(whole->dtype, shape));
    part->role = whole->role;
    part_[whole] = part;
    Divide({part, whole, whole->dtype});
  }

  // Readers of the whole tensor read gathered parts instead.
  void Divide(const Parts& parts) {
    std::vector<Node*> gathered;
    for (Node* reader : ReadersOf(parts.whole)) {
      if (QuantizesPart(*reader)) {
        quantizers_.push_back({parts.part, reader});
      } else if (RoundsPart(*reader)) {
        Round(parts, reader);
      } else {
        gathered.push_back(reader);
      }
    }
    GatherFor(parts.part, parts.wire, parts.whole, gathered);
  }

  void Round(const Parts& parts, Node* round) {
    Builder b(graph_, parts.part->name + ".", order_.front());
    Value* part = b.Ours("RoundTo", {parts.part}, round->attributes);
    Value* whole = round->out(0);
    Divide({part, whole, static_cast<DType>(round->Int("to", 0))});
    replaced_.push_back(round);
  }

  void Quantize(Value* part, Node* quantizer) {
    Value* whole = quantizer->out(0);
    Value* codes = QuantizePart(graph_, quantizer, part, amax_.at(part));
    GatherFor(codes, whole->dtype, whole, ReadersOf(whole));
    replaced_.push_back(quantizer);
  }

  // In the order of the graph.
  std::vector<Node*> ReadersOf(const Value* value) const {
    std::vector<Node*> readers = value->uses;
    std::ranges::sort(readers, {}, [&](Node* n) { return position_.at(n); });
    readers.erase(std::ranges::unique(readers).begin(), readers.end());
    return readers;
  }

  // The amaxes of all weights to quantize: one all-reduce, before everything
  // else.
  void ReduceAmaxes() {
    std::vector<Value*> parts;
    for (const auto& [part, quantizer] : quantizers_) {
      if (std::ranges::count(parts, part) == 0) parts.push_back(part);
    }
    if (parts.empty()) return;
    Builder b(graph_, "amax.", order_.front());
    const std::vector<Value*> amaxes =
        AmaxesOfWholes(b, parts, options_.mesh, {kDataRanks, kTensorRanks});
    for (size_t i = 0; i < parts.size(); ++i) amax_[parts[i]] = amaxes[i];
  }

  // The readers of `whole` read what is gathered from `part`.
  void GatherFor(Value* part, DType wire, Value* whole,
                 const std::vector<Node*>& readers) {
    std::vector<Node*> forward, backward;
    for (Node* reader : readers) {
      (backward_.contains(reader) ? backward : forward).push_back(reader);
    }
    if (!forward.empty() && !backward.empty() &&
        NoneBetween(forward.back(), backward.front())) {
      forward = readers;
      backward.clear();
    }
    for (const std::vector<Node*>& some : {forward, backward}) {
      if (some.empty()) continue;
      Value* gathered = Gather(part, wire, *whole, some.front());
      for (Node* reader : some) {
        for (size_t i = 0; i < reader->inputs().size(); ++i) {
          if (reader->in(i) == whole) graph_.SetInput(reader, i, gathered);
        }
      }
    }
    if (std::ranges::count(graph_.outputs, whole) > 0) {
      graph_.ReplaceUses(whole, Gather(part, wire, *whole, nullptr));
    }
  }

  Value* Gather(Value* part, DType wire, const Value& whole, Node* before) {
    Builder b(graph_, part->name + ".", before);
    Value* all = JoinParts(b, b.Cast(part, wire), *whole.shape, options_.mesh);
    return b.Cast(all, whole.dtype);
  }

  Graph& graph_;
  const ShardOptions& options_;
  std::vector<Node*> order_;  // nodes at the start
  std::unordered_map<const Node*, size_t> position_;
  std::unordered_set<Node*> backward_;       // empty: one gather serves all
  std::vector<bool> reads_matrix_;           // by position
  std::unordered_map<Value*, Value*> part_;  // of each parameter
  // Nodes that nobody reads any more; readers follow what they read.
  std::vector<Node*> replaced_;
  std::vector<std::pair<Value*, Node*>> quantizers_;  // of parts
  std::unordered_map<Value*, Value*> amax_;           // of the whole, by part
};

}  // namespace

void ShardParameters(Graph& graph, const ShardOptions& options,
                     ParameterGradients* gradients, bool whole_gradients) {
  Sharder(graph, options).Run(gradients, whole_gradients);
}

Value* JoinParts(Builder& b, Value* part, const Shape& whole,
                 const Mesh& mesh) {
  Attributes group = GroupOf(mesh, kDataRanks);
  if (part->dim(0) * mesh.dp != whole[0]) group["rows"] = whole[0];
  return b.Ours("AllGather", {part}, group);
}

Value* PartOfRank(Builder& b, Value* whole, int64_t rank, const Mesh& mesh) {
  const int64_t rows = RowsOfPart(*whole->shape, mesh.dp);
  Value* all = WithZeroRows(b, whole, rows * mesh.dp - whole->dim(0));
  return b.Op("Slice", {all, b.Ints({rank * rows}), b.Ints({(rank + 1) * rows}),
                        b.Ints({0})});
}

Value* ReduceToShard(Graph& graph, Value* gradient, const Mesh& mesh,
                     Node* before) {
  Builder b(graph, gradient->name + ".", before);
  const int64_t rows = gradient->dim(0);
  const int64_t more = RowsOfPart(*gradient->shape, mesh.dp) * mesh.dp - rows;
  Value* part = b.Ours("ReduceScatter", {WithZeroRows(b, gradient, more)},
                       GroupOf(mesh, kDataRanks));
  return SumOver(b, part, mesh, {kReplicaRanks});
}

}  // namespace onnx_fp8
