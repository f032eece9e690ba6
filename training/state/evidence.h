// SPDX-License-Identifier: Apache-2.0
//
// Evidence of a run's steps that went wrong, in the file evidence.json of
// its folder (docs/formats.md): what is needed to do such a step again.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace onnx_fp8 {

inline constexpr char kNotFinite[] = "not_finite", kSpike[] = "spike";

struct StepEvidence {
  std::string kind;   // kNotFinite or kSpike
  int64_t step = 0;   // from 1
  std::string cause;  // for people
  // As StepResult has them.
  double loss = 0, grad_norm = 0, loss_scale = 0;
  std::vector<int64_t> batches;  // Dataset::Batch's indices
  // The samples of each batch; empty: the caller made the batches.
  std::vector<std::vector<int64_t>> samples;
  uint64_t seed = 0;
  // The newest checkpoint before the step, "step_00000120", which stays as long
  // as this does; "": there was none, so the run starts at its beginning.
  std::string checkpoint;
  int64_t ranks = 1;
  std::string program;  // that trained, "onnx-fp8 0.9.0"
};

// Ordered by steps; empty: there is no such file. Errors: a file of another
// format, or that is damaged.
std::vector<StepEvidence> ReadEvidence(const std::string& dir);

// Replaces the file; without evidence it goes. Errors: the disk.
void WriteEvidence(const std::string& dir,
                   const std::vector<StepEvidence>& evidence);

// The checkpoints that it names; none if the file can't be read.
std::set<std::string> CheckpointsOfEvidence(const std::string& dir);

// dir/evidence.json
std::string EvidenceFile(const std::string& dir);

}  // namespace onnx_fp8
