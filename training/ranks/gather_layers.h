// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Gathers of parameters whose results are read at about the same time.
struct GatherLayer {
  Node* reader = nullptr;  // the first node that reads one of them
  std::vector<Node*> gathers;
  int64_t bytes = 0;  // of the results
};

// The gathers of parameters (AllGather nodes that depend on state alone, but on
// no other of them) by the node that is the first to read their results. If
// such nodes repeat, with results of equal types, each block of them is a
// layer, as a transformer's are. Blocks that repeat three times or more within
// such a block are layers, too. Of a block with more than `bytes` each part of
// at most `bytes` is one. All other nodes are layers of their own. `nodes`: of
// the graph, sorted. Returns the layers in the order of their readers.
std::vector<GatherLayer> FindGatherLayers(const std::vector<Node*>& nodes,
                                          int64_t bytes);

}  // namespace onnx_fp8
