// SPDX-License-Identifier: Apache-2.0
//
// Data parallel training. Each rank of the axes dp and replicate computes with
// its share of a batch. Sums over the ranks give all of them the loss, the
// gradients and the amaxes of the whole batch.
#pragma once

#include <cstdint>

#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

struct LossOfRanks {
  Value* loss;  // of the whole batch
  // The labels that count on all ranks together (CountedLabels of loss.h).
  Value* counted;
};

// The loss of the whole batch. `loss` is the mean over the labels of this
// rank's share, of which none may count. Each mean has the weight
// counted / (sum of counted over the ranks), so gradients by a rank's operands
// add up to the gradients of one process. REQUIRES: a graph with that loss, of
// concrete shapes. Errors: a loss that the model or a file computes, because
// nobody knows over how many labels it is a mean.
LossOfRanks LossOverRanks(Graph& graph, Value* loss, const LossSpec& spec,
                          const Mesh& mesh);

// The number of the random draw `draw` of a run with that seed. Ranks with
// other samples draw other numbers (MeshRanks::data_rank). One process draws
// what rank 0 draws.
uint64_t DrawOfRank(uint64_t seed, uint64_t draw, int64_t data_rank);

// Errors: a node that mixes the samples of a batch, and would see only this
// rank's: BatchNormalization in training.
void CheckSamplesAreApart(const Graph& graph);

}  // namespace onnx_fp8
