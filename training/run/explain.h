// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/trainer.h"
#include "providers/run/not_finite_watch.h"
#include "training/state/evidence.h"

namespace onnx_fp8 {

// A step of a run that was done again.
struct Explanation {
  int64_t first_step = 0;  // that was done again
  StepResult result;       // of the step itself
  // Where its NaN or Inf comes from; nullopt: it has none. An earlier step may
  // have brought it into the state.
  std::optional<NotFiniteOrigin> found;
  int64_t found_step = 0;
  int64_t sample = -1;               // of the data; -1: not known
  std::vector<LargeResult> largest;  // results, if nothing is found
  // How a step differs from the run's; "": its numbers are the same.
  std::string difference;
};

// Does the steps behind the session's again, up to that of the evidence, and
// watches the nodes of that one, and the new state of those before it. `spec`:
// of the run; its folder has the numbers that the run had. REQUIRES: the
// session has the state of the evidence's checkpoint. Errors: a step's; other
// samples than the evidence has, so the data have changed.
Explanation ExplainStep(TrainingSession& session, const Dataset& data,
                        const TrainerSpec& spec, const StepEvidence& evidence);

}  // namespace onnx_fp8
