// SPDX-License-Identifier: Apache-2.0
#include "providers/join_orientations.h"

#include <vector>

#include "graph/views.h"
#include "providers/scaled_products.h"

namespace onnx_fp8 {
namespace {

constexpr char kJoinedOp[] = "QuantizeBlockTranspose";

// Whether parts of that many elements fit into the kernel's tiles; 0: all.
bool IsPart(int64_t block) {
  return block == 0 || block == 32 || block == 64 || block == 128;
}

bool QuantizesRows(const Node& node) {
  return node.IsOurs("QuantizeBlock") && node.Int("block_rows", 0) == 1 &&
         IsPart(node.Int("block_columns", -1));
}

// Whether the node gives columns the scales that `rows` gives rows.
bool IsPartner(const Graph& graph, const Node& node, const Node& rows) {
  if (!node.IsOurs("QuantizeColumns")) return false;
  // The other amax would be returned in its place.
  if (node.out(2) && IsReturned(graph, node.out(2))) return false;
  for (const char* key : {"to", "block_columns", "pow2", "scale_to"}) {
    if (node.Int(key, -1) != rows.Int(key, -1)) return false;
  }
  return node.Float("q_max", 0) == rows.Float("q_max", 0);
}

Node* PartnerOf(const Graph& graph, const Node& rows) {
  for (Node* reader : rows.in(0)->uses) {
    if (IsPartner(graph, *reader, rows)) return reader;
  }
  return nullptr;
}

void Move(Graph& graph, Node& columns, size_t from, Node& joined, size_t to) {
  Value* made = columns.out(from);
  if (!made) return;
  Value* y = graph.AddOutput(&joined, to, graph.FreshName(made->name));
  y->dtype = made->dtype;
  y->shape = made->shape;
  graph.MoveOutput(made, &joined, to);
}

void Join(Graph& graph, Node& rows, Node& columns) {
  rows.op = kJoinedOp;
  Move(graph, columns, 0, rows, kTransposedCodes);
  Move(graph, columns, 1, rows, kTransposedScales);
  if (Value* amax = columns.out(2)) {
    if (rows.out(2)) {
      graph.ReplaceUses(amax, rows.out(2));
    } else {
      Move(graph, columns, 2, rows, 2);
    }
  }
  graph.RemoveNode(&columns);
}

}  // namespace

void JoinOrientations(Graph& graph, const KernelRegistry& kernels) {
  if (!kernels.Find(kDomain, kJoinedOp)) return;
  std::vector<Node*> all;
  for (Node& node : graph.nodes()) {
    if (QuantizesRows(node)) all.push_back(&node);
  }
  bool any = false;
  for (Node* rows : all) {
    Node* columns = PartnerOf(graph, *rows);
    if (!columns) continue;
    Join(graph, *rows, *columns);
    any = true;
  }
  if (any) graph.Sort();  // the columns may be read before the rows
}

}  // namespace onnx_fp8
