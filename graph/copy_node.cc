// SPDX-License-Identifier: Apache-2.0
#include "graph/copy_node.h"

namespace onnx_fp8 {

Node* CopyNode(Graph& graph, const Node& node,
               const std::vector<Value*>& inputs,
               const std::vector<std::string>& names, Node* before) {
  Node* copy = graph.AddNode(node.op, inputs, names, node.attributes,
                             node.domain, before);
  copy->name = node.name;
  copy->metadata = node.metadata;
  for (size_t i = 0; i < names.size(); ++i) {
    Value* made = copy->out(i);
    if (!made) continue;
    made->dtype = node.out(i)->dtype;
    made->shape = node.out(i)->shape;
    made->narrow = node.out(i)->narrow;
  }
  return copy;
}

}  // namespace onnx_fp8
