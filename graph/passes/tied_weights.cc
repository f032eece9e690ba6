// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/tied_weights.h"

#include <cstring>
#include <set>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

// Element (i, j) of `a` is element (j, i) of `b`, byte by byte.
bool AreTransposes(const Tensor& a, const Tensor& b) {
  int64_t rows = a.dim(0), columns = a.dim(1);
  size_t width = ByteSize(a.dtype());
  auto* x = static_cast<const std::byte*>(a.raw());
  auto* y = static_cast<const std::byte*>(b.raw());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (std::memcmp(x + static_cast<size_t>(i * columns + j) * width,
                      y + static_cast<size_t>(j * rows + i) * width,
                      width) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool IsUniform(const Tensor& t) {
  size_t width = ByteSize(t.dtype());
  auto* bytes = static_cast<const std::byte*>(t.raw());
  return t.size() == 0 ||
         std::memcmp(bytes, bytes + width, t.bytes() - width) == 0;
}

bool IsMatrix(const Value& value) {
  return value.data.rank() == 2 && !IsUniform(value.data);
}

bool IsLayerOp(const Node& node) {
  return node.Is("MatMul") || node.Is("Gemm") || node.Is("Conv");
}

// Whether the node is a last layer: a way from it to an output of the graph
// meets no other layer.
bool IsLastLayer(const Graph& graph, const Node& layer) {
  std::vector<const Node*> open = {&layer};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    for (const Value* value : node->outputs()) {
      if (!value) continue;
      if (IsReturned(graph, value)) return true;
      for (const Node* reader : value->uses) {
        if (!IsLayerOp(*reader)) open.push_back(reader);
      }
    }
  }
  return false;
}

// True if a last layer reads it, through views that keep it whole.
bool IsReadByLastLayer(const Graph& graph, const Value& matrix) {
  std::vector<const Value*> open = {&matrix};
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    for (const Node* node : value->uses) {
      bool product = FactsOf(*node).kind == OpKind::kProduct;
      if (product && (node->in(0) == value || node->in(1) == value) &&
          IsLastLayer(graph, *node)) {
        return true;
      }
      bool view = node->Is("Transpose") || node->Is("Identity") ||
                  node->Is("Cast") || node->Is("CastLike");
      if (view && node->in(0) == value) open.push_back(node->out(0));
    }
  }
  return false;
}

}  // namespace

std::optional<bool> HoldsTransposed(const Value& a, const Value& b) {
  const Tensor &x = a.data, &y = b.data;
  if (x.dtype() != y.dtype() || x.rank() != y.rank()) return {};
  if (x.shape() == y.shape() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0) {
    return false;
  }
  bool turned = x.rank() == 2 && x.dim(0) == y.dim(1) && x.dim(1) == y.dim(0);
  if (turned && AreTransposes(x, y)) return true;
  return {};
}

std::vector<Tie> FindTies(const Graph& graph,
                          const std::vector<Value*>& weights,
                          const std::set<std::string>& tables) {
  std::vector<Tie> ties;
  std::set<const Value*> tied;
  for (Value* first : weights) {
    if (!tables.contains(first->name) || !IsMatrix(*first)) continue;
    if (tied.contains(first)) continue;
    std::vector<Tie> equal;
    bool product = IsReadByLastLayer(graph, *first);
    for (Value* second : weights) {
      if (second == first || tied.contains(second)) continue;
      bool reads = IsReadByLastLayer(graph, *second);
      if (!reads && !tables.contains(second->name)) continue;
      auto transposed = HoldsTransposed(*first, *second);
      if (!transposed) continue;
      equal.push_back({first, second, *transposed});
      product |= reads;
    }
    // Two tables may be equal by chance.
    if (!product) continue;
    for (const Tie& tie : equal) tied.insert(tie.second);
    ties.insert(ties.end(), equal.begin(), equal.end());
  }
  return ties;
}

void Apply(Graph& graph, const Tie& tie) {
  std::string name = tie.second->name;
  Attributes perm;
  if (tie.transposed) perm["perm"] = std::vector<int64_t>{1, 0};
  Node* front = graph.nodes().empty() ? nullptr : &graph.nodes().front();
  Node* view =
      graph.AddNode(tie.transposed ? "Transpose" : "Identity", {tie.first},
                    {graph.FreshName(name)}, perm, "", front);
  view->out(0)->dtype = tie.second->dtype;
  view->out(0)->shape = tie.second->shape;
  graph.ReplaceUses(tie.second, view->out(0));
  graph.RemoveValue(tie.second);
  // Subgraphs read by name.
  graph.Rename(view->out(0), name);
}

}  // namespace onnx_fp8
