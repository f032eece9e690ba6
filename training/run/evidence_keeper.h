// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/trainer.h"
#include "training/run/batch_groups.h"
#include "training/run/loss_watch.h"
#include "training/state/evidence.h"

namespace onnx_fp8 {

// Whether the loss scale is the cause that the step was skipped: gradients of
// float16 overflow with it, and the next step has a smaller one.
bool IsLossScale(const StepResult& step);

// The first thing in the step that is not finite, for people. "": there is
// none, or it is no fault (IsLossScale, a batch without labels).
std::string WhatIsNotFinite(const StepResult& step);

// Keeps the evidence of a run's first step that is not finite, and of its first
// spike, in the run's folder.
class EvidenceKeeper {
 public:
  // The arguments must outlive it. `writes`: whether this rank does.
  // StepEvidence of steps behind the session's goes: the run does them again.
  EvidenceKeeper(const TrainingSession& session, const Dataset& data,
                 const TrainerSpec& spec, bool writes);

  // `what`: WhatIsNotFinite(step). Returns what was kept of the step; nullopt:
  // nothing is wrong with it, or there is evidence of that kind already.
  // Errors: the disk.
  std::optional<StepEvidence> Take(const StepResult& step,
                                   const std::string& what,
                                   const BatchGroups::Group& batches);

 private:
  const TrainingSession& session_;
  const Dataset& data_;
  const TrainerSpec& spec_;
  const bool writes_;
  LossWatch losses_;
  std::vector<StepEvidence> kept_;
};

}  // namespace onnx_fp8
