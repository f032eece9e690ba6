// SPDX-License-Identifier: Apache-2.0
#include "providers/k_major.h"

#include <string>
#include <vector>

namespace onnx_fp8 {
namespace {

constexpr int64_t kUnit = 16;  // of sizes that a GPU multiplies without copies
constexpr size_t kTransposed = 3;  // result of the fused nodes

bool IsProduct(const Node& node) {
  return node.IsOurs("ScaledMatMul") || node.IsOurs("ScaledMatMulBias");
}

// The op that writes both orientations; "" if the node is no quantizer.
std::string FusedOp(const Node& node) {
  for (const char* op : {"QuantizeTensor", "QuantizeWith"}) {
    if (node.IsOurs(op)) return std::string(op) + "Transpose";
  }
  return "";
}

// Operands 0 and 2 of a product are its codes. Whether K runs along the rows of
// memory of operand i is the attribute's business.
const char* OrientationOf(size_t i) { return i == 0 ? "transA" : "transB"; }

bool IsKMajor(const Node& product, size_t i) {
  return product.Int(OrientationOf(i), 0) == (i == 0 ? 0 : 1);
}

// (columns, rows) of a tensor whose axes are joined except the last; nullopt if
// the sizes do not fit.
std::optional<Shape> TransposedShape(const Value& q) {
  if (!q.concrete() || q.rank() < 2) return std::nullopt;
  int64_t columns = q.dim(q.rank() - 1);
  if (columns == 0) return std::nullopt;
  int64_t rows = NumElements(*q.shape) / columns;
  if (rows == 0 || rows % kUnit != 0 || columns % kUnit != 0) {
    return std::nullopt;
  }
  return Shape{columns, rows};
}

// Lets the products that read q across its rows read its transpose.
void Turn(Graph& graph, Node& quantizer, const std::string& fused) {
  Value* q = quantizer.out(0);
  auto shape = TransposedShape(*q);
  if (!shape) return;
  struct Use {
    Node* product;
    size_t operand;
  };
  std::vector<Use> uses;
  for (Node* reader : q->uses) {
    if (!IsProduct(*reader)) continue;
    for (size_t i : {0, 2}) {
      if (reader->in(i) == q && !IsKMajor(*reader, i)) {
        uses.push_back({reader, i});
      }
    }
  }
  if (uses.empty()) return;
  quantizer.op = fused;
  Value* transposed = graph.AddOutput(&quantizer, kTransposed,
                                      graph.FreshName(q->name + ".transposed"));
  transposed->dtype = q->dtype;
  transposed->shape = shape;
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
