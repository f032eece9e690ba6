// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx_fp8/session.h"
#include "providers/provider.h"
#include "training/state/session_state.h"
#include "training/step/step_graph.h"
#include "training/step/step_report.h"

namespace onnx_fp8 {

// A step that a provider has begun, with the reports of its micro-batches and,
// last, of its update.
struct StartedStep {
  int64_t step;
  int64_t batches;
  std::string remark;
  std::vector<std::pair<std::shared_ptr<const ReportLayout>, Tensor>> reports;
  // The casts that a micro-batch has measured, and their numbers. Empty: the
  // step measures none.
  std::vector<std::pair<std::vector<MeasuredCast>, Tensor>> casts = {};
  // The tensors that micro-batches have dumped. Empty: the step dumps none.
  std::vector<Dump> dumps = {};

  // Takes what a run of the step's graph says of its products.
  void TakeExtras(const StepGraph& step, const TensorMap& outputs);
};

// The steps that were started, in order, and their results.
class StartedSteps {
 public:
  // `provider` must outlive it.
  explicit StartedSteps(ExecutionProvider& provider) : provider_(&provider) {}

  void Add(StartedStep step) { started_.push_back(std::move(step)); }

  // Reads the reports of all started steps and adds them to `counts`; waits for
  // them. Errors: those steps failed on the device.
  void Settle(StepCounts* counts);

  // Forgets all started steps, with their results and errors.
  void Drop();

  bool has_results() const { return !results_.empty(); }
  // The oldest result. REQUIRES: has_results().
  StepResult Take();

 private:
  StepResult Read(const StartedStep& started);
  void ToHost(DumpedTensor* tensor) const;

  ExecutionProvider* provider_;
  std::deque<StartedStep> started_;
  std::deque<StepResult> results_;
};

}  // namespace onnx_fp8
