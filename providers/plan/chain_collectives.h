// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Collectives that run in one call: one of them, or a bucket.
using CollectiveCall = std::vector<int>;  // steps

// All ranks run collectives in one order: the graph's, as far as the data edges
// allow. The planner would otherwise order them by sizes, which may differ
// between ranks. Adds an edge from each collective to the next one, and from
// the operands of a bucket to its first node. Returns the calls in that order.
// `nodes`: the steps' nodes; `entries`: their kernels; `edges` (from, to): the
// data dependencies.
std::vector<CollectiveCall> ChainCollectives(
    const std::vector<const Node*>& nodes,
    const std::vector<const KernelEntry*>& entries,
    std::vector<std::pair<int, int>>* edges);

// Moves the nodes of a call behind its first one.
void PutSideBySide(const std::vector<CollectiveCall>& calls,
                   std::vector<int>* order);

// Adds the results of collectives. A node that they depend on runs on all
// ranks, whatever a flag of this rank says.
void AddCollectiveResults(const std::vector<const Node*>& nodes,
                          std::vector<const Value*>* values);

}  // namespace onnx_fp8
