// SPDX-License-Identifier: Apache-2.0
//
// Data parallel training. Each rank of the group "dp" computes with its share
// of a batch. Sums over the ranks give all of them the loss, the gradients and
// the amaxes of the whole batch.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

inline constexpr char kDataRanks[] = "dp";

// The sum or the maximum of x over the ranks.
Value* SumOverRanks(Builder& b, Value* x, int64_t ranks);
Value* MaxOverRanks(Builder& b, Value* x, int64_t ranks);

// The loss of the whole batch. `loss` is the mean over the labels of this
// rank's share, of which none may count. Each mean has the weight
// counted / (sum of counted over the ranks), so gradients by a rank's operands
// add up to those of one process. REQUIRES: a graph with that loss, of concrete
// shapes. Errors: a loss that the model computes, because nobody knows over how
// many labels it is a mean.
Value* LossOverRanks(Graph& graph, Value* loss, const LossSpec& spec,
                     int64_t ranks);

// The number of the random draw `draw` of a run with that seed. Ranks have
// other samples, and so draw other numbers. `ranks`: null for one process,
// which draws what the first rank draws.
uint64_t DrawOfRank(uint64_t seed, uint64_t draw, const Communicator* ranks);

// Errors: a node that mixes the samples of a batch, and would see those of this
// rank only: BatchNormalization in training.
void CheckSamplesAreApart(const Graph& graph);

}  // namespace onnx_fp8
