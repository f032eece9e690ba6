// SPDX-License-Identifier: Apache-2.0
//
// A step that was planned and does not run.
#pragma once

#include <cstddef>

#include "onnx_fp8/session.h"
#include "providers/plan/plan.h"
#include "training/make_provider.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

struct PaperStep {
  StepGraph step;  // with the provider's kernels
  Plan plan;
  // Bytes: the arena, which other plans share, as the one that makes the first
  // FP8 weights; state; batch, constants and outputs.
  size_t arena = 0, state = 0, others = 0;
  size_t outside =
      0;  // of state in other memory; `state` does not include them
  size_t moments = 0;       // of the state: moments in float32
  bool is_in_file = false;  // the step: its state and its updates are given

  size_t total() const { return arena + state + others; }
};

// Bytes of the plan's state that are moments in float32.
size_t FloatMoments(const Plan& plan);

// Fits a step of the source to the kernels and plans it. Counts this step
// alone. Errors: FitToKernels'; MakePlan's.
PaperStep PlanOnPaper(StepGraph step, const StepSource& source,
                      const SessionOptions& options,
                      const ProviderKernels& provider,
                      const ExecutionChoice& execution);

}  // namespace onnx_fp8
