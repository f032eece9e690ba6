// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_bias_gradient.h"

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/row_sums.h"

namespace onnx_fp8 {
namespace {

bool IsActivationGradient(const Node& node) {
  return node.domain == kDomain &&
         (node.op == "GeluGrad" || node.op == "GeluTanhGrad" ||
          node.op == "SiluGrad");
}

void Fuse(Graph& graph, Node& node, Node& sum) {
  Builder b(graph, node.out(0)->name + ".", &node);
  b.set_metadata(node.metadata);
  std::string op = node.op;
  op.insert(op.size() - std::string("Grad").size(), "Bias");
  auto made = b.Ops(op, {node.in(0), node.in(1)}, 2, {}, kDomain);
  Node* both = made[0]->producer;
  both->name = node.name;
  Value* dbias = b.Reshape(made[1], *sum.out(0)->shape);
  graph.MoveOutput(node.out(0), both, 0);
  graph.MoveOutput(sum.out(0), dbias->producer, dbias == made[1] ? 1 : 0);
  graph.RemoveNode(&node);
  graph.RemoveNode(&sum);
}

}  // namespace

void FuseBiasGradients(Graph& graph) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (IsActivationGradient(node) && node.out(0)->rank() > 0) {
      found.push_back(&node);
    }
  }
  for (Node* node : found) {
    if (Node* sum = SumOfRows(node->out(0))) Fuse(graph, *node, *sum);
  }
}

}  // namespace onnx_fp8
