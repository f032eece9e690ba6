// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// All ranks run collectives in one order: that of the graph, as far as the data
// edges allow. The planner would otherwise order them by sizes, which may
// differ between ranks. Adds an edge from each collective to the next one.
// `nodes`: of the steps; `edges` (from, to): of the data.
void ChainCollectives(const std::vector<const Node*>& nodes,
                      std::vector<std::pair<int, int>>* edges);

// Adds the results of collectives. A node that they depend on runs on all
// ranks, whatever a flag of this rank says.
void AddCollectiveResults(const std::vector<const Node*>& nodes,
                          std::vector<const Value*>* values);

}  // namespace onnx_fp8
