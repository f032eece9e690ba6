// SPDX-License-Identifier: Apache-2.0
#include "providers/node_profile.h"

#include "graph/node_cost.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/print.h"

namespace onnx_fp8 {

std::string ShapeOf(const Node& node) {
  const Value* largest = nullptr;
  for (const Value* value : node.outputs()) {
    if (!value || (largest && !value->concrete())) continue;
    bool larger =
        !largest || (largest->concrete() &&
                     NumElements(*value->shape) > NumElements(*largest->shape));
    if (larger) largest = value;
  }
  return largest ? TypeText(*largest) : "";
}

std::string RoleOf(const Node& node) {
  if (node.part == Part::kRecomputed) return "recompute";
  std::string role = NodeNote(node, "role");
  if (!role.empty()) return role;
  switch (FactsOf(node).kind) {
    case OpKind::kQuantize:
    case OpKind::kDequantize:
    case OpKind::kScaleUpdate:
      return "quantize";
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      return "attention";
    case OpKind::kNorm:
      return "norm";
    case OpKind::kParameterUpdate:
      return "optimizer";
    case OpKind::kCollective:
      return "collective";
    default:
      return node.part == Part::kOptimizer ? "optimizer" : "other";
  }
}

NodeProfile DescribeNode(const Node& node) {
  NodeCost cost = CostOf(node);
  return {.node = node.Where(),
          .op = OpName(node),
          .role = RoleOf(node),
          .fqn = NodeNote(node, "fqn"),
          .shape = ShapeOf(node),
          .calls = 1,
          .flops = cost.flops,
          .bytes = cost.bytes,
          .eight_bit = FactsOf(node).kind == OpKind::kScaledProduct};
}

}  // namespace onnx_fp8
