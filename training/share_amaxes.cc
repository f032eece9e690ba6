// SPDX-License-Identifier: Apache-2.0
#include "training/share_amaxes.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"
#include "graph/views.h"
#include "training/over_ranks.h"

namespace onnx_fp8 {
namespace {

bool JoinsParts(const Node& node) {
  return FactsOf(node).kind == OpKind::kCollective &&
         node.String("group", "") == kTensorRanks;
}

// Nodes that measure the scale of a part, in order.
std::vector<Node*> QuantizersOfParts(
    Graph& graph, const std::map<std::string, AxisSplit>& initializers) {
  std::unordered_set<const Value*> parts;
  for (const auto& [name, split] : initializers) {
    if (const Value* value = graph.Find(name)) parts.insert(value);
  }
  std::vector<Node*> quantizers;
  for (Node& node : graph.nodes()) {
    bool reads = false;
    for (const Value* in : node.inputs()) reads |= parts.contains(in);
    if (!reads || JoinsParts(node)) continue;
    // QuantizeWith measures a parameter in the first step.
    bool measures = node.IsOurs("QuantizeTensor") ||
                    (node.IsOurs("QuantizeWith") && !node.in(0)->producer);
    if (measures) quantizers.push_back(&node);
    for (const Value* out : node.outputs()) parts.insert(out);
  }
  return quantizers;
}

// `amax` is that of the whole.
void Quantize(Graph& graph, Node* quantizer, Value* amax) {
  Value* x = quantizer->in(0);
  Builder b(graph, x->name + ".", quantizer);
  b.set_metadata(quantizer->metadata);
  Value* scale_in = quantizer->in(1) ? quantizer->in(1) : b.Scalar(0, x);
  Node* made = b.Ops("QuantizeAmax", {x, amax, scale_in}, 2,
                     quantizer->attributes, kDomain)[0]
                   ->producer;
  for (size_t i = 0; i < 2; ++i) {
    graph.MoveOutput(quantizer->out(i), made, i);
  }
  if (Value* seen = quantizer->out(2)) {
    graph.MoveOutput(seen, b.Op("Identity", {amax})->producer, 0);
  }
  graph.RemoveNode(quantizer);
}

// Amaxes of `parts`, which exist before the node `before`.
std::vector<Value*> AmaxesOfWholes(Graph& graph, const Mesh& mesh,
                                   const std::vector<Value*>& parts,
                                   Node* before) {
  Builder b(graph, "amax.", before);
  if (parts.size() == 1) {
    return {MaxOver(b, b.Ours("Amax", {parts[0]}), mesh, {kTensorRanks})};
  }
  std::vector<Value*> own, amaxes;
  for (Value* part : parts) {
    own.push_back(b.Reshape(b.Ours("Amax", {part}), {1}));
  }
  Value* all = MaxOver(b, b.Op("Concat", own, {{"axis", int64_t{0}}}), mesh,
                       {kTensorRanks});
  for (size_t i = 0; i < parts.size(); ++i) {
    amaxes.push_back(b.Op("Gather", {all, b.Int(static_cast<int64_t>(i))},
                          {{"axis", int64_t{0}}}));
  }
  return amaxes;
}

}  // namespace

void ShareAmaxes(Graph& graph, const Mesh& mesh,
                 const std::map<std::string, AxisSplit>& initializers) {
  std::vector<Node*> weights;
  std::vector<Value*> parameters;
  std::unordered_map<const Value*, Value*> amax;
  for (Node* node : QuantizersOfParts(graph, initializers)) {
    Value* x = node->in(0);
    // A parameter itself; of a rounded one the rounded values count.
    if (!x->producer) {
      weights.push_back(node);
      if (amax.try_emplace(x, nullptr).second) parameters.push_back(x);
      continue;
    }
    Value*& known = amax[x];
    if (!known) known = AmaxesOfWholes(graph, mesh, {x}, node)[0];
    Quantize(graph, node, known);
  }
  if (parameters.empty()) return;
  const std::vector<Value*> made =
      AmaxesOfWholes(graph, mesh, parameters, &graph.nodes().front());
  for (size_t i = 0; i < made.size(); ++i) amax[parameters[i]] = made[i];
  for (Node* node : weights) Quantize(graph, node, amax.at(node->in(0)));
}

}  // namespace onnx_fp8
