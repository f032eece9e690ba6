// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace onnx_fp8 {

// Lets sums over the ranks of an axis with other samples (AllReduce,
// ReduceScatter; kSampleAxes) start when their operand
// is there, and joins them into buckets, in the order in which the operands are
// made. The operands of a bucket have at most `bytes` in all, unless one has
// more alone. A sum that depends on another one is not in its bucket. The nodes
// of a bucket stand behind the node that makes the last operand, and have the
// same number `bucket`. REQUIRES: known shapes.
void BucketReductions(Graph& graph, int64_t bytes);

// The bytes of a bucket in a ring of so many ranks, unless the user chooses
// others: 25 MiB, or in a long ring about as many as its links carry during the
// hops of a call (collectives/ring_cost.h), 2 MiB for each rank.
int64_t DefaultBucketBytes(int64_t ranks);

}  // namespace onnx_fp8
