// SPDX-License-Identifier: Apache-2.0
#include "graph/attention_shape.h"

#include "graph/op_facts.h"

namespace onnx_fp8 {

bool IsPacked(const Node& node) {
  return node.domain == kDomain && node.op.starts_with("AttentionPacked");
}

std::optional<AttentionShape> ShapeOfAttention(const Node& node) {
  size_t first = FactsOf(node).kind == OpKind::kAttentionGrad ? 1 : 0;
  int64_t heads = node.Int("heads", 1), groups = node.Int("kv_heads", 1);
  const Value* q = node.in(first);
  auto has_shape = [](const Value* x) {
    return x && x->concrete() && x->rank() == 3;
  };
  if (!has_shape(q) || heads < 1 || groups < 1) return std::nullopt;
  if (IsPacked(node)) {
    bool time_first = node.Ints("perm") == std::vector<int64_t>{1, 0, 2};
    int64_t b = q->dim(time_first ? 1 : 0), t = q->dim(time_first ? 0 : 1);
    int64_t d = q->dim(2) / (heads + 2 * groups);
    return AttentionShape{b, t, t, heads, groups, d, d};
  }
  const Value *k = node.in(first + 1), *v = node.in(first + 2);
  if (!has_shape(k) || !has_shape(v)) return std::nullopt;
  return AttentionShape{q->dim(0), q->dim(1),          k->dim(1),         heads,
                        groups,    k->dim(2) / groups, v->dim(2) / groups};
}

}  // namespace onnx_fp8
