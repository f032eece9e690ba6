// SPDX-License-Identifier: Apache-2.0
//
// Embeddings and losses of which each rank of the axis tp has a part of the
// vocabulary (Megatron-LM's VocabParallelEmbedding and
// vocab_parallel_cross_entropy).
#pragma once

#include <cstdint>

#include "collectives/mesh.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Rank `rank` has the rows [rank · n, (rank + 1) · n) of the table that
// `gather` reads along its first axis. Rows of other ranks are zeros, and the
// ranks add up their results. Indices below 0 count from the end, as ONNX has
// it.
void GatherFromParts(Graph& graph, Node& gather, const Mesh& mesh,
                     int64_t rank);

// `loss` is a CrossEntropy of scores (N, C / tp) and labels (N): its first
// result becomes that of all classes. With s the scores, m an upper bound of
// max s, t the label's score:
//   mean over counted labels of  m + log Σ exp(s − m) − t
// The sums, the bound and t are joined over the ranks: 3 N floats a rank.
void CrossEntropyOfParts(Graph& graph, Node& loss, const Mesh& mesh,
                         int64_t rank);

}  // namespace onnx_fp8
