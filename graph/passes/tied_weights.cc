// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/tied_weights.h"

#include <algorithm>
#include <cstring>

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

// True if a product reads it, through views that keep it whole.
bool IsReadByProduct(const Value& value) {
  return std::ranges::any_of(value.uses, [&](const Node* node) {
    if (node->Is("MatMul") || node->Is("Gemm")) {
      return node->in(0) == &value || node->in(1) == &value;
    }
    bool view = node->Is("Transpose") || node->Is("Identity") ||
                node->Is("Cast") || node->Is("CastLike");
    return view && node->in(0) == &value && IsReadByProduct(*node->out(0));
  });
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

std::vector<Tie> FindTies(const std::vector<Value*>& weights,
                          const std::set<std::string>& tables) {
  std::vector<Tie> ties;
  std::set<const Value*> tied;
  for (Value* first : weights) {
    if (!tables.contains(first->name) || !IsMatrix(*first)) continue;
    if (tied.contains(first)) continue;
    std::vector<Tie> equal;
    bool product = IsReadByProduct(*first);
    for (Value* second : weights) {
      if (second == first || tied.contains(second)) continue;
      bool reads = IsReadByProduct(*second);
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
