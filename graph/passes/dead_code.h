// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Removes the nodes on which no graph output and no next value of a state
// depends, and then the initializers that nothing reads. A value that subgraphs
// read, at any depth, counts as read by their node. Graph inputs, state (by
// role or because it is bound) and values of subgraphs stay.
void RemoveDeadCode(Graph& graph);

}  // namespace onnx_fp8
