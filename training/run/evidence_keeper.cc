// SPDX-License-Identifier: Apache-2.0
#include "training/run/evidence_keeper.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/number_text.h"
#include "collectives/mesh.h"
#include "training/state/checkpoint.h"
#include "training/step/session_checks.h"

namespace onnx_fp8 {

// With a scale of 1 or less it is not the scale that makes them overflow.
bool IsLossScale(const StepResult& step) {
  return step.skipped && step.loss_scale > 1 && std::isfinite(step.loss);
}

std::string WhatIsNotFinite(const StepResult& step) {
  if (step.cause == kNoLabelCounts || IsLossScale(step)) return "";
  if (step.skipped) return step.cause;
  if (step.grad_norm >= 0 && !std::isfinite(step.grad_norm)) {
    return "a gradient is not finite";
  }
  if (std::isnan(step.grad_norm)) return "a gradient is not finite";
  return std::isinf(step.update_amax) ? "an update is not finite" : "";
}

EvidenceKeeper::EvidenceKeeper(const TrainingSession& session,
                               const Dataset& data, const TrainerSpec& spec,
                               bool writes)
    : session_(session),
      data_(data),
      spec_(spec),
      writes_(writes && !spec.folder.empty()),
      losses_(spec.spike) {
  if (!writes_) return;
  const auto later = [&](const StepEvidence& e) {
    return e.step > session.step();
  };
  try {
    kept_ = ReadEvidence(spec.folder);
    if (std::erase_if(kept_, later) > 0) WriteEvidence(spec.folder, kept_);
  } catch (const Error&) {
    // The file is of another version, or the disk is full. New evidence of
    // this run replaces the file.
  }
}

std::optional<StepEvidence> EvidenceKeeper::Take(
    const StepResult& step, const std::string& what,
    const BatchGroups::Group& batches) {
  const double median = step.skipped ? 0 : losses_.Jumped(step.loss);
  if (!writes_ || (what.empty() && median == 0)) return std::nullopt;
  StepEvidence e;
  e.kind = what.empty() ? kSpike : kNotFinite;
  if (std::ranges::count(kept_, e.kind, &StepEvidence::kind) > 0) {
    return std::nullopt;
  }
  e.step = step.step;
  e.cause = what.empty() ? Concat("the loss is ", NumberText(step.loss), ", ",
                                  NumberText(std::round(step.loss / median)),
                                  " times the median of the losses before it")
                         : what;
  e.loss = step.loss;
  e.grad_norm = step.grad_norm;
  e.loss_scale = step.loss_scale;
  for (int64_t i = 0; i < batches.count; ++i) {
    e.batches.push_back(batches.first + i);
    e.samples.push_back(data_.Samples(batches.first + i));
  }
  e.seed = session_.Options().seed;
  e.checkpoint = NewestCheckpoint(spec_.folder);
  if (spec_.ranks) e.ranks = spec_.ranks->mesh().ranks();
  e.program = "onnx-fp8 " ONNX_FP8_VERSION;
  kept_.push_back(e);
  WriteEvidence(spec_.folder, kept_);
  return e;
}

}  // namespace onnx_fp8
