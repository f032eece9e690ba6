// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/coded_updates.h"

#include "graph/op_facts.h"

namespace onnx_fp8 {

std::vector<Node*> CodedUpdates(Graph& graph, const KernelRegistry& kernels) {
  std::vector<Node*> updates;
  for (Node& node : graph.nodes()) {
    if (FactsOf(node).kind != OpKind::kParameterUpdate) continue;
    const KernelEntry* entry = kernels.Find(node.domain, node.op);
    if (entry && entry->traits.coded_state) updates.push_back(&node);
  }
  return updates;
}

bool WidensBFloat16(const Node& node) {
  return node.Is("Cast") && node.in(0)->dtype == DType::kBFloat16 &&
         node.out(0)->dtype == DType::kFloat;
}

}  // namespace onnx_fp8
