// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fold_transpose.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <vector>

namespace onnx_fp8 {
namespace {

using Permutation = std::vector<int64_t>;

bool IsTranspose(const Node* node) {
  return node && node->Is("Transpose") && node->in(0) && node->out(0);
}

Permutation IdentityOf(size_t rank) {
  Permutation perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

// Nothing if the attribute is no permutation, or missing at unknown rank.
std::optional<Permutation> PermOf(const Node& node) {
  const Value& x = *node.in(0);
  if (!node.Has("perm")) {
    if (!x.shape) return std::nullopt;
    Permutation perm = IdentityOf(x.shape->size());
    std::ranges::reverse(perm);
    return perm;
  }
  Permutation perm = node.Ints("perm"), sorted = perm;
  std::ranges::sort(sorted);
  if (sorted != IdentityOf(perm.size())) return std::nullopt;
  if (x.shape && x.shape->size() != perm.size()) return std::nullopt;
  return perm;
}

// y = Transpose(Transpose(x, p), q): axis i of y is axis p[q[i]] of x.
void Merge(Graph& graph, Node& node) {
  const Node* inner = node.in(0)->producer;
  if (!IsTranspose(inner)) return;
  auto p = PermOf(*inner), q = PermOf(node);
  if (!p || !q || p->size() != q->size()) return;
  for (int64_t& axis : *q) axis = (*p)[static_cast<size_t>(axis)];
  graph.SetInput(&node, 0, inner->in(0));
  node.attributes["perm"] = *q;
}

void DropIdentity(Graph& graph, Node& node) {
  auto perm = PermOf(node);
  if (!perm || *perm != IdentityOf(perm->size())) return;
  if (std::ranges::find(graph.outputs, node.out(0)) == graph.outputs.end()) {
    graph.ReplaceUses(node.out(0), node.in(0));
  } else {
    node.op = "Identity";
    node.attributes.clear();
    node.source = -1;
  }
}

void FoldIntoGemm(Graph& graph, Node& gemm) {
  const char* flags[] = {"transA", "transB"};
  for (size_t i = 0; i < 2; ++i) {
    if (!gemm.in(i) || !IsTranspose(gemm.in(i)->producer)) continue;
    const Node& transpose = *gemm.in(i)->producer;
    if (PermOf(transpose) != Permutation{1, 0}) continue;
    int64_t flag = gemm.Int(flags[i], 0) != 0 ? 0 : 1;
    gemm.attributes[flags[i]] = flag;
    graph.SetInput(&gemm, i, transpose.in(0));
  }
}

// Values that are needed without a use list that says so; subgraphs read by
// name.
std::unordered_set<const Value*> Needed(const Graph& graph) {
  std::vector<Value*> captured = graph.CapturedBySubgraphs();
  std::unordered_set<const Value*> needed(captured.begin(), captured.end());
  needed.insert(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) needed.insert(binding.next);
  return needed;
}

}  // namespace

void FoldTranspose(Graph& graph) {
  std::vector<Node*> transposes;
  for (Node& node : graph.nodes()) {
    if (IsTranspose(&node)) {
      Merge(graph, node);
      DropIdentity(graph, node);
      transposes.push_back(&node);
    } else if (node.Is("Gemm")) {
      FoldIntoGemm(graph, node);
    }
  }
  auto needed = Needed(graph);
  std::ranges::reverse(transposes);
  for (Node* node : transposes) {
    const Value* y = node->out(0);
    if (y->uses.empty() && !needed.contains(y)) graph.RemoveNode(node);
  }
}

}  // namespace onnx_fp8
