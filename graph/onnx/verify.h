// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace onnx_fp8 {

// Every pass must leave these facts behind:
// - a node reads values that an earlier node, the graph's inputs or
//   initializers provide; in a subgraph also values that the enclosing graphs
//   provide at that point; use lists and producers agree with that;
// - graph inputs and outputs are listed once and exist; an initializer has the
//   dtype and shape of its data and no producer;
// - a state binding's key is an initializer and bound once; its next value is
//   available after the last node and has the same dtype and shape;
// - every op has a schema at the graph's opset or is one of ours.
// Errors: the first offender; `after` (a pass, a file) is named too.
void Verify(const Graph& graph, std::string_view after = {});

}  // namespace onnx_fp8
