// SPDX-License-Identifier: Apache-2.0
//
// Sessions on ranks that share batches. The ranks are threads.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "onnx_fp8/session.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {

// Samples [n r / N, n (r + 1) / N) of the batch.
TensorMap ShareOf(const TensorMap& batch, const Communicator& ranks);

struct RankRun {
  std::vector<StepResult> steps;
  TensorMap weights;
  std::vector<ScaleInfo> scales;
};

// Trains on this rank's shares of the steps' micro-batches.
RankRun TrainSteps(const SessionOptions& options,
                   const std::vector<Batches>& steps,
                   Communicator* ranks = nullptr);

// The runs of all ranks. EXPECTs the same weights on all.
std::vector<RankRun> TrainRanks(int size, const SessionOptions& options,
                                const std::vector<Batches>& steps);

}  // namespace onnx_fp8
