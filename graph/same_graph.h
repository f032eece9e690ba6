// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Whether the graphs compute the same values under the same names: the same
// nodes in the same order, on the same inputs, constants and state. State is
// the same if its name, type and role are; its numbers lie with the caller.
// A subgraph is the same as itself only. Names and notes of nodes do not count.
bool SameGraph(const Graph& a, const Graph& b);

}  // namespace onnx_fp8
