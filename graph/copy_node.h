// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Adds a node like `node` to the graph, with these inputs and with results of
// these names, whose types are the results' of `node`; "": the result is left
// out. The copy has the node's name, attributes and metadata. It stands before
// `before`; null: at the end.
Node* CopyNode(Graph& graph, const Node& node,
               const std::vector<Value*>& inputs,
               const std::vector<std::string>& names, Node* before = nullptr);

}  // namespace onnx_fp8
