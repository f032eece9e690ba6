// SPDX-License-Identifier: Apache-2.0
//
// Embeddings and losses of which each rank of the axis tp has a part of the
// vocabulary (Megatron-LM's VocabParallelEmbedding and
// vocab_parallel_cross_entropy).
#pragma once

#include <cstdint>

#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Rank r has the rows from r n on, n of them, of the table of `rows` rows that
// `gather` reads along its first axis. Returns the rows that `gather` finds,
// with zeros in place of other ranks' rows: the ranks' results add up to the
// whole. `behind` adds nodes behind `gather`. Indices below 0 count from the
// end, as ONNX has it, and one that is outside is an error on all ranks.
Value* OwnRows(Builder& behind, Node& gather, int64_t rank, int64_t rows);

// `loss` is a CrossEntropy of scores (N, n) and labels (N): its first result
// becomes the loss over all `classes`. Scores of the last rank that belong to
// no class do not count. With s the scores, m an upper bound of max s, t the
// label's score:
//   mean over counted labels of  m + log(sum of exp(s - m)) - t
// The sum, the bound and t are joined over the ranks: 3 N floats of a rank. A
// label that is no class is an error on all of them.
void CrossEntropyOfParts(Graph& graph, Node& loss, const Mesh& mesh,
                         int64_t rank, int64_t classes);

}  // namespace onnx_fp8
