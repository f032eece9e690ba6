// SPDX-License-Identifier: Apache-2.0
#include "providers/fuse_column_sums.h"

#include "graph/builder.h"
#include "graph/row_sums.h"
#include "providers/scaled_products.h"

namespace onnx_fp8 {
namespace {

bool WritesBoth(const Node& node) {
  return node.IsOurs("QuantizeTensorTranspose") ||
         node.IsOurs("QuantizeWithTranspose");
}

// Lets the quantizer write the result of `sum`.
void Fuse(Graph& graph, Node& quantizer, Node& sum) {
  Value* y = sum.out(0);
  Value* sums = graph.AddOutput(&quantizer, kColumnSums,
                                graph.FreshName(y->name + ".columns"));
  sums->dtype = y->dtype;
  sums->shape = Shape{quantizer.in(0)->dim(-1)};
  Builder b(graph, y->name + ".", &sum);
  b.set_metadata(sum.metadata);
  Value* viewed = b.Reshape(sums, *y->shape);
  graph.MoveOutput(y, viewed->producer, viewed == sums ? kColumnSums : 0);
  graph.RemoveNode(&sum);
}

}  // namespace

void FuseColumnSums(Graph& graph, const KernelRegistry& kernels) {
  bool any = false;
  std::vector<Node*> quantizers;
  for (Node& node : graph.nodes()) {
    if (WritesBoth(node) && node.out(0) && node.out(kTransposedCodes) &&
        kernels.Find(kDomain, node.op)) {
      quantizers.push_back(&node);
    }
  }
  for (Node* quantizer : quantizers) {
    Node* sum = SumOfRows(quantizer->in(0));
    if (!sum || sum->out(0)->narrow != DType::kUndefined) continue;
    Fuse(graph, *quantizer, *sum);
    any = true;
  }
  if (any) graph.Sort();  // the sum may be read before its new maker
}

}  // namespace onnx_fp8
