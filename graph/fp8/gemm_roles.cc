// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_roles.h"

#include <unordered_map>
#include <unordered_set>

#include "graph/attention_shape.h"
#include "graph/op_facts.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

using Values = std::unordered_set<const Value*>;

// All values computed from `seed`. REQUIRES: nodes in execution order.
Values Downstream(const Graph& graph, const Value* seed) {
  Values reached;
  if (!seed) return reached;
  reached.insert(seed);
  for (const Node& node : graph.nodes()) {
    bool depends = false;
    for (const Value* value : node.inputs()) depends |= reached.contains(value);
    if (!depends) continue;
    for (const Value* value : node.outputs()) {
      if (value) reached.insert(value);
    }
  }
  return reached;
}

// For each value that is a gradient of one of `weights`, or a part of it: that
// weight. Walks back from each gradient through the sums and views that build
// it.
std::unordered_map<const Value*, Value*> PartsOfGradients(
    const std::vector<std::pair<Value*, Value*>>& gradients,
    const Values& weights) {
  std::unordered_map<const Value*, Value*> weight_of;
  for (const auto& [weight, gradient] : gradients) {
    if (!weights.contains(weight)) continue;
    std::vector<Value*> open = {gradient};
    while (!open.empty()) {
      Value* value = open.back();
      open.pop_back();
      if (!weight_of.try_emplace(value, weight).second) continue;
      Node* node = value->producer;
      if (!node) continue;
      bool sum = node->Is("Add") || node->Is("Sum");
      // Pad is the gradient of Slice.
      bool part = IsViewOp(*node) || node->Is("ReduceSum") || node->Is("Pad");
      // One operand is zero if it comes from a branch that is not taken.
      bool choice = FactsOf(*node).kind == OpKind::kChoice;
      if (!sum && !part && !choice) continue;
      size_t count =
          sum || choice ? node->inputs().size() : MovedOperands(*node);
      for (size_t i = choice ? 1 : 0; i < count; ++i) {
        open.push_back(node->in(i));
      }
    }
  }
  return weight_of;
}

int64_t Axis(const Value& value, int64_t axis) {
  if (!value.shape || value.rank() == 0) return -1;
  return value.dim(axis);
}

void SetSizes(GemmInfo* info) {
  const Node& node = *info->node;
  bool trans_a = node.Is("Gemm") && node.Int("transA", 0) != 0;
  bool trans_b = node.Is("Gemm") && node.Int("transB", 0) != 0;
  const Value& a = *node.in(0);
  const Value& b = *node.in(1);
  const Value& y = *node.out(0);
  info->k = Axis(a, trans_a ? 0 : -1);
  bool vector = b.shape && b.rank() == 1;
  info->n = vector ? 1 : Axis(b, trans_b ? 0 : -1);
  if (y.concrete() && info->n > 0) {
    info->m = NumElements(*y.shape) / info->n;
  }
}

// Adds the products inside an Attention op of ours, all as kNone.
void AddAttention(Node& node, std::vector<GemmInfo>* gemms) {
  OpKind kind = FactsOf(node).kind;
  bool forward = kind == OpKind::kAttention;
  bool backward = kind == OpKind::kAttentionGrad;
  if (!forward && !backward) return;
  auto add = [&](int64_t m, int64_t depth, int64_t n) {
    gemms->push_back({.node = &node, .m = m, .k = depth, .n = n});
  };
  auto z = ShapeOfAttention(node);
  if (!z) {
    for (int i = 0; i < (forward ? 2 : 4); ++i) add(-1, -1, -1);
    return;
  }
  int64_t rows = z->b * z->heads * z->t, columns = z->b * z->heads * z->s;
  if (forward) {
    add(rows, z->d, z->s);  // scores
    add(rows, z->s, z->e);  // y
  } else {
    add(rows, z->e, z->s);     // gradient of the probabilities
    add(rows, z->s, z->d);     // dq
    add(columns, z->t, z->d);  // dk
    add(columns, z->t, z->e);  // dv
  }
}

}  // namespace

const char* Name(GemmRole role) {
  switch (role) {
    case GemmRole::kForward:
      return "forward";
    case GemmRole::kDgrad:
      return "dgrad";
    case GemmRole::kWgrad:
      return "wgrad";
    default:
      return "none";
  }
}

std::vector<GemmInfo> ClassifyGemms(
    Graph& graph, Value* seed,
    const std::vector<std::pair<Value*, Value*>>& gradients) {
  Values backward = Downstream(graph, seed);
  Values forward_weights;
  std::vector<GemmInfo> gemms;
  for (Node& node : graph.nodes()) {
    AddAttention(node, &gemms);
    if (FactsOf(node).kind != OpKind::kProduct) continue;
    GemmInfo info;
    info.node = &node;
    SetSizes(&info);
    Value* weights[2];
    int grads = 0;
    for (int i : {0, 1}) {
      Value* operand = node.in(static_cast<size_t>(i));
      weights[i] = WeightBehind(operand);
      if (backward.contains(operand)) {
        ++grads;
        info.grad_slot = i;
      }
    }
    if (grads == 0 && (weights[0] || weights[1])) {
      // In a product of two weights the right one counts.
      info.weight_slot = weights[1] ? 1 : 0;
      info.role = GemmRole::kForward;
      info.weight = weights[info.weight_slot];
      forward_weights.insert(info.weight);
    } else if (grads == 1 && weights[1 - info.grad_slot]) {
      info.weight_slot = 1 - info.grad_slot;
      info.role = GemmRole::kDgrad;
      info.weight = weights[info.weight_slot];
    } else if (grads != 1) {
      info.grad_slot = -1;
    }
    gemms.push_back(info);
  }
  // A bias or an embedding also has gradients that come from products.
  auto weight_of = PartsOfGradients(gradients, forward_weights);
  for (GemmInfo& info : gemms) {
    auto it = weight_of.find(info.node->out(0));
    if (info.weight || info.grad_slot < 0 || it == weight_of.end()) continue;
    info.role = GemmRole::kWgrad;
    info.weight = it->second;
  }
  return gemms;
}

}  // namespace onnx_fp8
