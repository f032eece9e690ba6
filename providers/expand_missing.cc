// SPDX-License-Identifier: Apache-2.0
#include "providers/expand_missing.h"

#include <vector>

#include "graph/expand.h"

namespace onnx_fp8 {

void ExpandMissing(Graph& graph, const KernelRegistry& kernels,
                   const std::set<std::string>& forced,
                   const Evaluator* evaluator) {
  for (bool expanded = true; expanded;) {
    expanded = false;
    std::vector<Node*> open;
    for (Node& node : graph.nodes()) {
      bool missing = !kernels.Find(node.domain, node.op);
      if ((missing || forced.contains(node.op)) && HasBody(node)) {
        open.push_back(&node);
      }
    }
    for (Node* node : open) {
      ExpandNode(graph, *node, evaluator);
      expanded = true;
    }
  }
}

}  // namespace onnx_fp8
