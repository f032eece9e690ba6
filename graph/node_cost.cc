// SPDX-License-Identifier: Apache-2.0
//
// A product (M,K) · (K,N) is 2 M N K: y has M N elements. The rest follows from
// the definitions in ONNX's operator list and graph/schemas/attention.cc.
#include "graph/node_cost.h"

#include <algorithm>
#include <set>

namespace onnx_fp8 {
namespace {

double Elements(const Value& value) {
  return value.concrete() ? static_cast<double>(NumElements(*value.shape)) : 0;
}

// 2 M N K, with K one of a's axes: all but the last one count as one.
double ProductFlops(const Node& node) {
  const Value& a = *node.in(0);
  if (!a.concrete() || a.rank() == 0) return 0;
  auto last = static_cast<double>(a.dim(-1));
  bool transposed = !node.Is("MatMul") && node.Int("transA", 0) != 0;
  double k = !transposed ? last : last > 0 ? Elements(a) / last : 0;
  return 2 * Elements(*node.out(0)) * k;
}

// Every output element of a convolution is a sum over one filter; every input
// element of a transposed one goes into as many outputs.
double ConvFlops(const Node& node, const Value& by) {
  const Value& w = *node.in(1);
  if (!w.concrete() || w.rank() == 0 || w.dim(0) == 0) return 0;
  return 2 * Elements(by) * (Elements(w) / static_cast<double>(w.dim(0)));
}

// Scores (d deep) and results (e) of the forward; the backward computes the
// scores again, the gradients of probabilities (e) and of q, k (d) and v (e).
double AttentionFlops(const Node& node, bool backward) {
  size_t first = backward ? 1 : 0;
  const Value *q = node.in(first), *k = node.in(first + 1),
              *v = node.in(first + 2);
  if (!q->concrete() || !k->concrete() || !v->concrete()) return 0;
  int64_t heads = node.Int("heads", 1), groups = node.Int("kv_heads", 1);
  int64_t t = q->dim(1), s = k->dim(1), pairs = t * s;
  if (node.Int("causal", 0) != 0) {
    int64_t short_rows = std::min(t, s);  // row i sees i + 1 columns, at most s
    pairs = short_rows * (short_rows + 1) / 2 + (t - short_rows) * s;
  }
  auto d = static_cast<double>(k->dim(2) / groups);
  auto e = static_cast<double>(v->dim(2) / groups);
  double depth = backward ? 3 * d + 2 * e : d + e;
  return 2 * static_cast<double>(q->dim(0) * heads * pairs) * depth;
}

double Flops(const Node& node) {
  if (node.Is("MatMul") || node.Is("Gemm") ||
      (node.domain == kDomain && node.op.starts_with("ScaledMatMul"))) {
    return ProductFlops(node);
  }
  if (node.Is("Conv")) return ConvFlops(node, *node.out(0));
  if (node.Is("ConvTranspose")) return ConvFlops(node, *node.in(0));
  if (node.IsOurs("Attention") || node.IsOurs("AttentionBias")) {
    return AttentionFlops(node, false);
  }
  if (node.IsOurs("AttentionGrad") || node.IsOurs("AttentionBiasGrad")) {
    return AttentionFlops(node, true);
  }
  double most = 0;
  for (const auto* values : {&node.inputs(), &node.outputs()}) {
    for (const Value* value : *values) {
      if (value) most = std::max(most, Elements(*value));
    }
  }
  return most;
}

}  // namespace

NodeCost CostOf(const Node& node) {
  NodeCost cost{.flops = Flops(node)};
  std::set<const Value*> counted = {nullptr};
  for (const auto* values : {&node.inputs(), &node.outputs()}) {
    for (const Value* value : *values) {
      if (!counted.insert(value).second) continue;
      cost.bytes +=
          Elements(*value) * static_cast<double>(ByteSize(value->dtype));
    }
  }
  return cost;
}

}  // namespace onnx_fp8
