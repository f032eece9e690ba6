// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_weight_codes.h"

#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "providers/ops/scaled_products.h"
#include "providers/passes/coded_updates.h"

namespace onnx_fp8 {
namespace {

// The place of the column sums. A quantizer that makes them does not join.
constexpr size_t kColumnSums = 4;

// Values that depend on the results of updates.
std::unordered_set<const Value*> BehindUpdates(
    const Graph& graph, const std::vector<Node*>& updates) {
  std::unordered_set<const Value*> behind;
  const std::unordered_set<const Node*> own(updates.begin(), updates.end());
  for (const Node& node : graph.nodes()) {
    if (!own.contains(&node) && !ReadsAny(node, behind)) continue;
    behind.insert(node.outputs().begin(), node.outputs().end());
    behind.erase(nullptr);
  }
  return behind;
}

// Whether it makes codes of the rows, and maybe of the columns, of a matrix.
bool IsQuantizer(const Node& node) {
  if (node.IsOurs("QuantizeWith")) {
    return node.out(0) && node.out(1) && node.out(2);
  }
  return node.IsOurs("QuantizeWithTranspose") && node.in(0)->concrete() &&
         node.in(0)->rank() == 2 && node.out(0) && node.out(1) && node.out(2) &&
         !node.out(kColumnSums);
}

// Whether the node decodes the new parameter as the update has encoded it.
bool Decodes(const Node& node, const Node& update) {
  const Value* next = update.out(0);
  if (next->dtype != DType::kBFloat16 || node.in(0) != next) return false;
  if (!update.Has("correction")) {
    return node.Is("Cast") && node.out(0)->dtype == DType::kFloat;
  }
  return node.IsOurs("DecodeMaster") && node.in(1)->producer == &update;
}

class CodeJoiner {
 public:
  CodeJoiner(Graph& graph, std::unordered_set<const Value*> behind)
      : graph_(graph), behind_(std::move(behind)) {}

  // Whether a quantizer has joined the update.
  bool Join(Node& update) {
    const Value* next = update.out(0);
    if (!next) return false;
    if (next->dtype == DType::kFloat) return JoinReader(update, next, true);
    for (Node* reader : std::vector(next->uses)) {
      if (!Decodes(*reader, update)) continue;
      if (JoinReader(update, reader->out(0), true)) return true;
    }
    return false;
  }

 private:
  // Joins a quantizer that reads `x`, the new parameter.
  bool JoinReader(Node& update, const Value* x, bool may_round) {
    for (Node* reader : std::vector(x->uses)) {
      if (reader->in(0) != x) continue;
      if (IsQuantizer(*reader) && !behind_.contains(reader->in(1))) {
        TakeOver(update, *reader, may_round ? nullptr : x->producer);
        return true;
      }
      const bool rounds = FactsOf(*reader).kind == OpKind::kRound;
      if (!may_round || !rounds) continue;
      if (JoinReader(update, reader->out(0), false)) return true;
    }
    return false;
  }

  // `rounding`: before the quantizer; null: there is none.
  void TakeOver(Node& update, Node& quantizer, const Node* rounding) {
    graph_.SetInput(&update, update.inputs().size(), quantizer.in(1));
    for (const char* name : {"to", "q_max"}) {
      update.attributes[name] = quantizer.attributes.at(name);
    }
    update.attributes["round_to"] =
        rounding ? rounding->Int("to", 0) : static_cast<int64_t>(DType::kFloat);
    const size_t first = update.outputs().size();
    for (size_t i : {0, 1, 2}) {
      graph_.MoveToNewOutput(quantizer.out(i), &update, first + i);
    }
    if (quantizer.outputs().size() > kTransposedCodes &&
        quantizer.out(kTransposedCodes)) {
      Turn(update.out(first), quantizer);
    }
    Value* x = quantizer.in(0);
    graph_.RemoveNode(&quantizer);
    while (x->producer != &update && x->uses.empty() &&
           !IsReturned(graph_, x)) {
      Node* maker = x->producer;
      x = maker->in(0);
      graph_.RemoveNode(maker);
    }
  }

  void Turn(Value* codes, Node& quantizer) {
    Value* turned = quantizer.out(kTransposedCodes);
    Builder b(graph_, turned->name + ".", &quantizer);
    b.set_part(quantizer.part);
    b.set_metadata(quantizer.metadata);
    Value* made =
        b.Op("Transpose", {codes}, {{"perm", std::vector<int64_t>{1, 0}}});
    graph_.MoveOutput(turned, made->producer, 0);
  }

  Graph& graph_;
  const std::unordered_set<const Value*> behind_;
};

}  // namespace

void JoinWeightCodes(Graph& graph, const KernelRegistry& kernels) {
  const std::vector<Node*> updates = CodedUpdates(graph, kernels);
  CodeJoiner joiner(graph, BehindUpdates(graph, updates));
  bool any = false;
  for (Node* update : updates) any |= joiner.Join(*update);
  // The scale of the codes may be computed behind its new reader.
  if (any) graph.Sort();
}

}  // namespace onnx_fp8
