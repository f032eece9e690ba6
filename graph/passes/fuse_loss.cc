// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_loss.h"

#include <algorithm>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

bool IsUnused(const Graph& graph, const Value* value) {
  return !value ||
         (value->uses.empty() &&
          std::ranges::find(graph.outputs, value) == graph.outputs.end());
}

bool Fits(const Graph& graph, const Node& node) {
  return node.Is("SoftmaxCrossEntropyLoss") && !node.in(2) &&
         node.Has("ignore_index") &&
         node.String("reduction", "mean") == "mean" && node.in(0)->concrete() &&
         node.in(0)->rank() == 2 && node.in(0)->dtype == DType::kFloat &&
         IsUnused(graph, node.out(1));
}

}  // namespace

void FuseLoss(Graph& graph) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (Fits(graph, node)) found.push_back(&node);
  }
  for (Node* node : found) {
    Builder b(graph, node->out(0)->name + ".", node);
    b.set_metadata(node->metadata);
    auto made =
        b.Ops("CrossEntropy", {node->in(0), node->in(1)}, 2,
              {{"ignore_index", node->Int("ignore_index", 0)}}, kDomain);
    ReplaceWith(graph, *node, made[0]);
  }
}

}  // namespace onnx_fp8
