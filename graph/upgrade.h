// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// The oldest opset of the ONNX domain that import understands, and the one
// whose meaning all nodes have afterwards (the newest of the pinned ONNX).
inline constexpr int kOldestOpset = 13;
inline constexpr int kNormalOpset = 24;

// Edits nodes in place so that each means the same at opset `to`; keeps names
// and metadata; goes into subgraphs. Nothing happens if the graph is there
// already. A table: one row per op that changed. Errors: an opset outside the
// range, a use that has no newer form.
void Upgrade(Graph& graph, int to = kNormalOpset);

}  // namespace onnx_fp8
