// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// A run of blocks: nodes of equal ops and types that repeat one after another,
// such as the layers of a transformer.
struct RepeatedBlocks {
  std::vector<std::vector<Node*>> blocks;
  // The results of these nodes of the blocks are read by later nodes than the
  // block's own.
  std::unordered_set<Node*> ends;
};

// The runs among `nodes`, which are a forward in its order. Only nodes that
// compute activations count: their results depend on inputs of the graph and on
// weights. Of the places at which a run can be cut into blocks, the ones are
// taken where the fewest bytes go from block to block. The first and the last
// block may be parts of one. REQUIRES: roles set, concrete shapes.
std::vector<RepeatedBlocks> FindRepeatedBlocks(const std::vector<Node*>& nodes);

}  // namespace onnx_fp8
