// SPDX-License-Identifier: Apache-2.0
#include "training/step/store_masters.h"

#include <unordered_set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/op_facts.h"
#include "graph/schemas/draws.h"
#include "optimizers/master_format.h"

namespace onnx_fp8 {
namespace {

bool RoundsToHalf(const Node& node) {
  return FactsOf(node).kind == OpKind::kRound &&
         node.Int("to", 0) == static_cast<int64_t>(DType::kBFloat16);
}

// Whether the node looks up few rows of the weight, as an embedding does.
bool LooksUp(const Node& node, const Value* weight) {
  return node.Is("Gather") && node.in(0) == weight && node.in(1) != weight &&
         node.out(0)->concrete() &&
         NumElements(*node.out(0)->shape) < NumElements(*weight->shape);
}

class MasterStorer {
 public:
  MasterStorer(Graph& graph, const MasterStorage& storage)
      : graph_(graph), storage_(storage) {}

  void Store(Value* weight) {
    const std::vector<Node*> uses = weight->uses;
    weight->dtype = DType::kBFloat16;
    weight->data = Tensor::Zeros(DType::kBFloat16, *weight->shape);
    Value* correction = nullptr;
    if (storage_.correction != DType::kUndefined) {
      correction = graph_.AddInitializer(
          storage_.state_name(weight->name + kCorrection),
          Tensor::Zeros(storage_.correction, *weight->shape));
      correction->role = Role::kCorrection;
    }
    std::unordered_set<const Node*> seen;
    for (Node* reader : uses) {
      if (seen.insert(reader).second) DecodeFor(reader, weight, correction);
    }
    for (size_t i = 0; i < graph_.state.size(); ++i) {
      if (graph_.state[i].state != weight) continue;
      EncodeNext(i, correction);
      break;
    }
    if (correction && correction->uses.empty()) graph_.RemoveValue(correction);
  }

 private:
  void DecodeFor(Node* reader, Value* weight, Value* correction) {
    Builder b(graph_, weight->name + ".", reader);
    b.set_part(reader->part);
    b.set_metadata(reader->metadata);
    if (RoundsToHalf(*reader)) {
      return Replace(reader, b.Cast(weight, DType::kFloat));
    }
    if (LooksUp(*reader, weight)) {
      const auto rows = [&](Value* from) {
        return from ? b.Op("Gather", {from, reader->in(1)}, reader->attributes)
                    : nullptr;
      };
      Value* halves = rows(weight);
      return Replace(reader, Decoded(b, halves, rows(correction)));
    }
    b.set_metadata({});
    Value* decoded = Decoded(b, weight, correction);
    for (size_t i = 0; i < reader->inputs().size(); ++i) {
      if (reader->in(i) == weight) graph_.SetInput(reader, i, decoded);
    }
  }

  Value* Decoded(Builder& b, Value* half, Value* correction) const {
    if (!correction) return b.Cast(half, DType::kFloat);
    return b.Ours("DecodeMaster", {half, correction}, DTypeOfCorrection());
  }

  // The result of the node becomes that one.
  void Replace(Node* node, Value* result) {
    graph_.MoveOutput(node->out(0), result->producer, 0);
    graph_.RemoveNode(node);
  }

  // The bfloat16 gets the name that the next value had.
  void EncodeNext(size_t binding, Value* correction) {
    Value* weight = graph_.state[binding].state;
    Value* next = graph_.state[binding].next;
    Check(next->producer != nullptr, "[", graph_.file,
          "] expected a node that updates ", weight->name);
    Builder b(graph_, weight->name + ".", graph_.NodeBehind(*next->producer));
    b.set_part(Part::kOptimizer);
    const std::string name = next->name;
    graph_.Rename(next, graph_.FreshName(name + ".float"));
    std::vector<Value*> kept;
    if (correction) {
      kept = b.Ops("EncodeMaster", {next}, 2, DTypeOfCorrection(), kDomain);
      graph_.Rename(kept[1], graph_.FreshName(correction->name + ".next"));
      graph_.state.insert(
          graph_.state.begin() + static_cast<int64_t>(binding) + 1,
          {correction, kept[1]});
    } else {
      kept = {b.Ours("RoundStochastic", {next, storage_.seed, storage_.number},
                     DrawsOf(weight->name, storage_.places(weight->name)))};
    }
    graph_.Rename(kept[0], name);
    graph_.state[binding].next = kept[0];
  }

  Attributes DTypeOfCorrection() const {
    return {{"correction", static_cast<int64_t>(storage_.correction)}};
  }

  Graph& graph_;
  const MasterStorage& storage_;
};

}  // namespace

void StoreMasters(Graph& graph, const std::vector<Value*>& weights,
                  const MasterStorage& storage) {
  MasterStorer storer(graph, storage);
  for (Value* weight : weights) storer.Store(weight);
}

}  // namespace onnx_fp8
