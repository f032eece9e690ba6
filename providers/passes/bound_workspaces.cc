// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/bound_workspaces.h"

#include <string>

#include "graph/op_facts.h"
#include "providers/most_workspace.h"

namespace onnx_fp8 {

void BoundWorkspaces(Graph& graph, size_t bytes) {
  for (Node& node : graph.nodes()) {
    if (FactsOf(node).kind != OpKind::kAttentionGrad) continue;
    node.metadata[kMostWorkspace] = std::to_string(bytes);
  }
}

}  // namespace onnx_fp8
