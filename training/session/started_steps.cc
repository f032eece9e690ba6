// SPDX-License-Identifier: Apache-2.0
#include "training/session/started_steps.h"

#include <cmath>

#include "base/check.h"
#include "training/session/step_results.h"

namespace onnx_fp8 {

void StartedStep::TakeExtras(const StepGraph& step, const TensorMap& outputs) {
  if (!step.casts.empty()) {
    casts.emplace_back(step.casts, outputs.at(step.cast_numbers));
  }
  if (step.dumped.empty()) return;
  const auto get = [&](const std::string& name) {
    return name.empty() ? Tensor() : outputs.at(name);
  };
  Dump& dump = dumps.emplace_back();
  for (const DumpedOutputs& made : step.dumped) {
    DumpedTensor& tensor = dump.emplace_back(made.label);
    tensor.value = get(made.value);
    tensor.codes = get(made.codes);
    tensor.scale = get(made.scale);
  }
}

void StartedSteps::Settle(StepCounts* counts) {
  while (!started_.empty()) {
    StartedStep started = std::move(started_.front());
    started_.pop_front();
    results_.push_back(Read(started));
    const bool skipped = results_.back().skipped;
    counts->skipped += skipped;
    counts->tracked += skipped ? 0 : started.batches;
  }
}

void StartedSteps::Drop() {
  started_.clear();
  results_.clear();
  try {
    provider_->Synchronize();
  } catch (const Error&) {
  }
}

StepResult StartedSteps::Take() {
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void StartedSteps::ToHost(DumpedTensor* tensor) const {
  for (Tensor* part : {&tensor->value, &tensor->codes, &tensor->scale}) {
    if (part->defined()) *part = provider_->ToHost(*part);
  }
}

StepResult StartedSteps::Read(const StartedStep& started) {
  std::vector<StepReport> reports;
  for (const auto& [layout, tensor] : started.reports) {
    reports.push_back(ReadReport(*layout, provider_->ToHost(tensor)));
  }
  StepResult result = Summarize(reports);
  // Micro-batches may have other casts than the first one: their shapes may
  // decide which layers are in FP8.
  for (const auto& [casts, numbers] : started.casts) {
    JoinCasts(CastsIn(casts, provider_->ToHost(numbers)), &result.casts);
  }
  result.dumps = started.dumps;
  for (Dump& dump : result.dumps) {
    for (DumpedTensor& tensor : dump) ToHost(&tensor);
  }
  result.step = started.step;
  result.remark = started.remark;
  if (!result.skipped && !std::isfinite(result.grad_norm)) {
    result.remark += Concat(result.remark.empty() ? "" : "; ",
                            "weights whose gradient is not finite kept "
                            "their values (`release_gradients`)");
  }
  return result;
}

}  // namespace onnx_fp8
