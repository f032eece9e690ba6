// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Moves the gathers of parameters (AllGather nodes that depend on state alone)
// ahead of the nodes that read them, so that they can run beside the layer
// before. A layer is a node with the gathers that it is the first to read. Its
// gathers start before the node of the layer before. Layers in between do not
// count if all of them together gather less than half as much: the gathers of a
// product start before the product before it, whatever biases and norms there
// are in between.
void GatherAhead(Graph& graph);

}  // namespace onnx_fp8
