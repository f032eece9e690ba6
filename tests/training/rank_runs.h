// SPDX-License-Identifier: Apache-2.0
//
// Sessions on ranks that train together. The ranks are threads.
#pragma once

#include <vector>

#include "collectives/mesh.h"
#include "onnx_fp8/session.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {

// Samples [n r / N, n (r + 1) / N) of the batch, for rank r of N.
TensorMap ShareOf(const TensorMap& batch, int64_t rank, int64_t ranks);
inline TensorMap ShareOf(const TensorMap& batch, const Communicator& ranks) {
  return ShareOf(batch, ranks.rank(), ranks.size());
}

struct RankRun {
  std::vector<StepResult> steps;
  TensorMap weights;
  std::vector<ScaleInfo> scales;
};

// Trains on this rank's shares of the steps' micro-batches.
RankRun TrainSteps(const SessionOptions& options,
                   const std::vector<Batches>& steps,
                   const MeshRanks* ranks = nullptr, double lr = 1e-2);

// The runs of all ranks. EXPECTs the same weights on all.
std::vector<RankRun> TrainRanks(const Mesh& mesh, const SessionOptions& options,
                                const std::vector<Batches>& steps,
                                double lr = 1e-2);
inline std::vector<RankRun> TrainRanks(int size, const SessionOptions& options,
                                       const std::vector<Batches>& steps) {
  return TrainRanks(Mesh{.dp = size}, options, steps);
}

// All tensors of the newest checkpoint in the folder, whole.
TensorMap StateIn(const std::string& folder);

// Four steps of tokens for the fixtures of language models.
std::vector<Batches> TokenSteps(size_t micro_batches = 1, int64_t samples = 4);

}  // namespace onnx_fp8
