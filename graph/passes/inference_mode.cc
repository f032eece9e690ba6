// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/inference_mode.h"

namespace onnx_fp8 {

void InferenceMode(Graph& graph) {
  std::vector<Node*> dropouts;
  for (Node& node : graph.nodes()) {
    if (node.Is("Dropout")) dropouts.push_back(&node);
    if (node.Is("BatchNormalization") && node.Int("training_mode", 0) != 0 &&
        !node.out(1) && !node.out(2)) {
      node.attributes["training_mode"] = int64_t{0};
    }
  }
  for (Node* node : dropouts) {
    bool mask_read = node->out(1) && !node->out(1)->uses.empty();
    if (!mask_read) graph.ReplaceUses(node->out(0), node->in(0));
  }
}

}  // namespace onnx_fp8
