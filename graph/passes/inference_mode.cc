// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/inference_mode.h"

#include <algorithm>

#include "graph/batch_statistics.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

// Readers of `from` read `to` instead; an output of the graph keeps its name.
void PassOn(Graph& graph, Value* from, Value* to) {
  if (std::ranges::find(graph.outputs, from) == graph.outputs.end()) {
    graph.ReplaceUses(from, to);
    return;
  }
  Node* same = graph.AddNode("Identity", {to}, {graph.FreshName(from->name)},
                             {}, "", from->producer);
  same->out(0)->dtype = from->dtype;
  same->out(0)->shape = from->shape;
  graph.MoveOutput(from, same, 0);
}

// The dropout's input replaces its output. Readers of the mask read the mask of
// inference: all true.
void Idle(Graph& graph, Node& dropout) {
  const Value* mask = dropout.out(1);
  bool mask_read =
      mask && (!mask->uses.empty() || std::ranges::count(graph.outputs, mask));
  if (!mask_read) {
    PassOn(graph, dropout.out(0), dropout.in(0));
  } else if (dropout.in(2)) {
    graph.RemoveInput(&dropout, 2);
  }
}

}  // namespace

void NormalizeByStatistics(Graph& graph, Node* node) {
  for (size_t i : {1, 2}) {
    if (node->out(i)) PassOn(graph, node->out(i), node->in(i + 2));
  }
  Attributes attributes = node->attributes;
  attributes["training_mode"] = int64_t{0};
  const Value* y = node->out(0);
  Node* made =
      graph.AddNode(node->op, node->inputs(), {graph.FreshName(y->name)},
                    std::move(attributes), node->domain, node);
  made->name = node->name;
  made->metadata = node->metadata;
  made->out(0)->dtype = y->dtype;
  made->out(0)->shape = y->shape;
  graph.MoveOutput(node->out(0), made, 0);
  graph.RemoveNode(node);
}

void DropNothing(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (node.Is("Dropout")) Idle(graph, node);
  }
}

void RemoveIdleDropout(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (!node.Is("Dropout")) continue;
    const Value* training = node.in(2);
    bool off = !training ||
               (training->is_constant() && DoubleAt(training->data, 0) == 0);
    if (off || NumberIn(node.in(1)) == 0.0) Idle(graph, node);
  }
}

void InferenceMode(Graph& graph) {
  DropNothing(graph);
  std::vector<Node*> norms;
  for (Node& node : graph.nodes()) {
    if (NormalizesByBatch(node)) {
      norms.push_back(&node);
    }
  }
  for (Node* node : norms) NormalizeByStatistics(graph, node);
}

}  // namespace onnx_fp8
