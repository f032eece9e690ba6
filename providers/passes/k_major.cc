// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/k_major.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

// The op that writes both orientations; "" if the node is no quantizer.
std::string FusedOp(const Node& node) {
  for (const char* op : {"QuantizeTensor", "QuantizeWith"}) {
    if (node.IsOurs(op)) return std::string(op) + "Transpose";
  }
  return "";
}

constexpr char kColumnsOp[] = "QuantizeColumns";

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

// A product's code operand.
struct BlockUse {
  Node* product;
  size_t operand;
};

bool IsBlockProduct(const Node& node) {
  return node.IsOurs("ScaledMatMulBlock") ||
         node.IsOurs("ScaledMatMulBlockBias");
}

// The operands that are q with its scales, if all that read q or the scales are
// products that read q across its rows. Else empty.
std::vector<BlockUse> UsesAcross(const Graph& graph, const Value* q,
                                 const Value* scales) {
  if (IsReturned(graph, q) || IsReturned(graph, scales)) return {};
  std::vector<BlockUse> uses;
  for (Node* reader : q->uses) {
    if (!IsBlockProduct(*reader)) return {};
    for (size_t i : kCodeOperands) {
      if (reader->in(i) != q && reader->in(i + 1) != scales) continue;
      if (reader->in(i) != q || reader->in(i + 1) != scales ||
          IsKMajor(*reader, i)) {
        return {};
      }
      auto is_known = [&](const BlockUse& use) {
        return use.product == reader && use.operand == i;
      };
      if (std::ranges::none_of(uses, is_known)) uses.push_back({reader, i});
    }
  }
  // No reader of the scales alone.
  return scales->uses.size() == uses.size() ? uses : std::vector<BlockUse>();
}

// Lets a quantizer whose scales belong to columns write the transpose.
void TurnColumns(Graph& graph, Node& quantizer) {
  Value *q = quantizer.out(0), *scales = quantizer.out(1);
  if (!q || !scales || quantizer.Int("block_columns", 0) != 1) return;
  Shape matrix = CodeMatrix(*q);
  if (matrix.empty() || NeedsZeros(matrix)) return;
  std::vector<BlockUse> uses = UsesAcross(graph, q, scales);
  if (uses.empty()) return;
  quantizer.op = kColumnsOp;
  std::swap(quantizer.attributes["block_rows"],
            quantizer.attributes["block_columns"]);
  q->shape = Shape{matrix[1], matrix[0]};
  scales->shape = Shape{scales->dim(1), scales->dim(0)};
  for (const BlockUse& use : uses) {
    bool a = use.operand == 0;
    Attributes& attributes = use.product->attributes;
    attributes[OrientationOf(use.operand)] = int64_t{a ? 0 : 1};
    std::swap(attributes[a ? "a_block_rows" : "b_block_rows"],
              attributes[a ? "a_block_columns" : "b_block_columns"]);
  }
}

}  // namespace

void MakeKMajor(Graph& graph, const KernelRegistry& kernels) {
  bool turns_columns = kernels.Find(kDomain, kColumnsOp);
  for (Node& node : graph.nodes()) {
    if (turns_columns && node.IsOurs("QuantizeBlock")) TurnColumns(graph, node);
    std::string fused = FusedOp(node);
    if (fused.empty() || !node.out(0) || !kernels.Find(kDomain, fused)) {
      continue;
    }
    Turn(graph, node, fused);
  }
}

}  // namespace onnx_fp8
