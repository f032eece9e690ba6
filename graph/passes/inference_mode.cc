// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/inference_mode.h"

namespace onnx_fp8 {
namespace {

// The node without what it gives in training only.
void NormaliseByStatistics(Graph& graph, Node* node) {
  for (size_t i : {1, 2}) {
    if (node->out(i)) graph.ReplaceUses(node->out(i), node->in(i + 2));
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

}  // namespace

void DropNothing(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (!node.Is("Dropout")) continue;
    bool mask_read = node.out(1) && !node.out(1)->uses.empty();
    if (!mask_read) graph.ReplaceUses(node.out(0), node.in(0));
  }
}

void InferenceMode(Graph& graph) {
  DropNothing(graph);
  std::vector<Node*> norms;
  for (Node& node : graph.nodes()) {
    if (node.Is("BatchNormalization") && node.Int("training_mode", 0) != 0) {
      norms.push_back(&node);
    }
  }
  for (Node* node : norms) NormaliseByStatistics(graph, node);
}

}  // namespace onnx_fp8
