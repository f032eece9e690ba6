// SPDX-License-Identifier: Apache-2.0
#include "training/session/step_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "training/step/session_checks.h"
#include "training/step/step_report.h"

namespace onnx_fp8 {
namespace {

// FP8 has saturated an infinite operand: a loss that looks finite is none.
std::string CauseIn(const StepGraph& step, const TensorMap& feeds,
                    const TensorMap& outputs, float* loss) {
  if (!step.amax.empty()) {
    std::string lost = NotFinite(outputs.at(step.amax), 0, step.fp8.labels);
    if (!lost.empty()) {
      *loss = std::numeric_limits<float>::quiet_NaN();
      return lost + " is not finite";
    }
  }
  if (std::isfinite(*loss)) return "";
  return CountsNoLabel(step, feeds, *loss, outputs) ? kNoLabelCounts
                                                    : "the loss is not finite";
}

bool IsFinite(const Tensor& x) {
  const float* at = x.data<float>();
  return std::all_of(at, at + x.size(),
                     [](float e) { return std::isfinite(e); });
}

// Empty: the step measures none.
std::vector<MeasuredCast> CastsOf(const StepGraph& step,
                                  const TensorMap& outputs) {
  if (step.casts.empty()) return {};
  return CastsIn(step.casts, outputs.at(step.cast_numbers));
}

}  // namespace

EvalResult EvalResultOf(const StepGraph& step, const TensorMap& feeds,
                        const TensorMap& outputs) {
  EvalResult result;
  if (!step.loss.empty()) {
    result.has_loss = true;
    result.loss = outputs.at(step.loss).data<float>()[0];
  }
  result.cause = CauseIn(step, feeds, outputs, &result.loss);
  for (const std::string& name : step.outputs) {
    result.outputs[name] = outputs.at(name);
  }
  result.casts = CastsOf(step, outputs);
  return result;
}

std::vector<MeasuredCast> CastsIn(std::vector<MeasuredCast> casts,
                                  const Tensor& numbers) {
  const double* next = numbers.data<double>();
  for (MeasuredCast& cast : casts) {
    cast.numbers = CastStatistics::From(next);
    next += CastStatistics::kNumbers;
  }
  return casts;
}

GradientResult GradientResultOf(const StepGraph& step, const TensorMap& feeds,
                                const TensorMap& outputs) {
  GradientResult result;
  result.loss = outputs.at(step.loss).data<float>()[0];
  result.cause = CauseIn(step, feeds, outputs, &result.loss);
  for (const std::string& name : step.outputs) {
    result.outputs[name] = outputs.at(name);
  }
  for (const auto& [output, name] : step.gradients) {
    result.gradients[name] = outputs.at(output);
    if (result.cause.empty() && !IsFinite(result.gradients[name])) {
      result.cause = "the gradient of " + name + " is not finite";
    }
  }
  for (const auto& [output, name] : step.input_gradients) {
    result.input_gradients[name] = outputs.at(output);
  }
  result.casts = CastsOf(step, outputs);
  return result;
}

}  // namespace onnx_fp8
