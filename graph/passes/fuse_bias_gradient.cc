// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_bias_gradient.h"

#include <string>
#include <vector>

#include "graph/builder.h"

namespace onnx_fp8 {
namespace {

bool IsActivationGradient(const Node& node) {
  return node.domain == kDomain &&
         (node.op == "GeluGrad" || node.op == "GeluTanhGrad" ||
          node.op == "SiluGrad");
}

// The ReduceSum of dx, or of a view of it, over all but the last axis.
Node* SumOfRows(const Value* dx, int64_t columns) {
  for (Node* reader : dx->uses) {
    if (reader->Is("Reshape") && reader->in(0) == dx) {
      Node* found = SumOfRows(reader->out(0), columns);
      if (found) return found;
    }
    if (!reader->Is("ReduceSum") || reader->in(0) != dx || !reader->in(1) ||
        !reader->in(1)->is_constant() || dx->dim(-1) != columns) {
      continue;
    }
    std::vector<bool> summed(static_cast<size_t>(dx->rank()), false);
    for (int64_t axis : ToInts(reader->in(1)->data)) {
      summed[static_cast<size_t>(axis < 0 ? axis + dx->rank() : axis)] = true;
    }
    std::vector<bool> all_but_last(summed.size(), true);
    all_but_last.back() = false;
    if (summed == all_but_last) return reader;
  }
  return nullptr;
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
    const Value* dx = node->out(0);
    if (Node* sum = SumOfRows(dx, dx->dim(-1))) Fuse(graph, *node, *sum);
  }
}

}  // namespace onnx_fp8
