// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/fuse_column_sums.h"

#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"
#include "graph/row_sums.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

// Whether the node can sum the columns of its operand.
bool CanSum(const Node& node) {
  if (ColumnSumsOf(node) == 0) return false;
  // A scale that the step computes may wait for the sums.
  bool waits = FactsOf(node).scale == CodeScale::kGiven && !IsGiven(node.in(1));
  bool turned = node.IsOurs("QuantizeColumns");
  return !waits && node.out(0) && (turned || node.out(kTransposedCodes));
}

// Lets result i of the quantizer be the result of `sum`.
void Fuse(Graph& graph, Node& quantizer, size_t i, Node& sum) {
  Value* y = sum.out(0);
  Value* sums =
      graph.AddOutput(&quantizer, i, graph.FreshName(y->name + ".columns"));
  sums->dtype = y->dtype;
  sums->shape = Shape{quantizer.in(0)->dim(-1)};
  Builder b(graph, y->name + ".", &sum);
  b.set_metadata(sum.metadata);
  Value* viewed = b.Reshape(sums, *y->shape);
  graph.MoveOutput(y, viewed->producer, viewed == sums ? i : 0);
  graph.RemoveNode(&sum);
}

}  // namespace

void FuseColumnSums(Graph& graph, const KernelRegistry& kernels) {
  std::vector<Node*> quantizers;
  for (Node& node : graph.nodes()) {
    if (CanSum(node) && kernels.Find(kDomain, node.op)) {
      quantizers.push_back(&node);
    }
  }
  bool any = false;
  for (Node* quantizer : quantizers) {
    Node* sum = SumOfRows(quantizer->in(0));
    if (!sum || sum->out(0)->narrow != DType::kUndefined) continue;
    Fuse(graph, *quantizer, ColumnSumsOf(*quantizer), *sum);
    any = true;
  }
  if (any) graph.Sort();  // the sum may be read before its new maker
}

}  // namespace onnx_fp8
