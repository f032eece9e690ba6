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

}  // namespace onnx_fp8
