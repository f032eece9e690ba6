// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_set>

#include "graph/graph.h"

namespace onnx_fp8 {

// Moves each node of the optimizer (Part::kOptimizer) behind the last node
// whose result it reads. The update of a parameter then runs as soon as its
// gradient is known, and the gradient's memory is free from there on. (The plan
// runs all readers of the old parameter before.) Sorts the graph.
void RunUpdatesEarly(Graph& graph);

// The same for these nodes. No other nodes change their order.
void RunEarly(Graph& graph, const std::unordered_set<const Node*>& nodes);

// Moves each of these nodes right before its first reader, if all of its
// readers are among these nodes. Its result then lives only while they need it.
// REQUIRES: the graph is sorted.
void RunBeforeReaders(Graph& graph,
                      const std::unordered_set<const Node*>& nodes);

}  // namespace onnx_fp8
