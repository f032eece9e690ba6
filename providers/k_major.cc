// SPDX-License-Identifier: Apache-2.0
#include "providers/k_major.h"

#include <string>
#include <vector>

#include "providers/scaled_products.h"

namespace onnx_fp8 {
namespace {

// The op that writes both orientations; "" if the node is no quantizer.
std::string FusedOp(const Node& node) {
  for (const char* op : {"QuantizeTensor", "QuantizeWith"}) {
    if (node.IsOurs(op)) return std::string(op) + "Transpose";
  }
  return "";
}

const char* OrientationOf(size_t i) { return i == 0 ? "transA" : "transB"; }

// Lets the products that read q across its rows read its transpose.
void Turn(Graph& graph, Node& quantizer, const std::string& fused) {
  Value* q = quantizer.out(0);
  Shape matrix = CodeMatrix(*q);
  if (matrix.empty() || NeedsZeros(matrix)) return;
  struct Use {
    Node* product;
    size_t operand;
  };
  std::vector<Use> uses;
  for (Node* reader : q->uses) {
    if (!IsScaledMatMul(*reader)) continue;
    for (size_t i : kCodeOperands) {
      if (reader->in(i) == q && !IsKMajor(*reader, i)) {
        uses.push_back({reader, i});
      }
    }
  }
  if (uses.empty()) return;
  quantizer.op = fused;
  Value* transposed = graph.AddOutput(&quantizer, kTransposedCodes,
                                      graph.FreshName(q->name + ".transposed"));
  transposed->dtype = q->dtype;
  transposed->shape = Shape{matrix[1], matrix[0]};
  for (const Use& use : uses) {
    // A product that reads q twice is listed twice.
    if (use.product->in(use.operand) != q) continue;
    graph.SetInput(use.product, use.operand, transposed);
    use.product->attributes[OrientationOf(use.operand)] =
        int64_t{use.operand == 0 ? 0 : 1};
  }
}

}  // namespace

void MakeKMajor(Graph& graph, const KernelRegistry& kernels) {
  for (Node& node : graph.nodes()) {
    std::string fused = FusedOp(node);
    if (fused.empty() || !node.out(0) || !kernels.Find(kDomain, fused)) {
      continue;
    }
    Turn(graph, node, fused);
  }
}

}  // namespace onnx_fp8
