// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace onnx_fp8 {

// Moves the gathers of parameters ahead of the nodes that read them, so that
// they can run beside the layer before (gather_layers.h). The gathers of a
// layer start before the first reader of the layer before. Layers in between do
// not count if all of them together gather less than half as much: the gathers
// of a product start before the product before it, whatever biases and norms
// there are in between.
//
// A layer's gathers in one group of ranks get the same number `bucket`, so that
// they are one call. A layer that repeats has at most `bytes` in a call, unless
// one node reads more. With 0 bytes each gather is a call of its own. REQUIRES:
// known shapes.
void GatherAhead(Graph& graph, int64_t bytes);

}  // namespace onnx_fp8
