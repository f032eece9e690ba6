// SPDX-License-Identifier: Apache-2.0
#include "training/step_results.h"

namespace onnx_fp8 {

EvalResult EvalResultOf(const StepGraph& step, const TensorMap& outputs) {
  EvalResult result;
  if (!step.loss.empty()) {
    result.has_loss = true;
    result.loss = outputs.at(step.loss).data<float>()[0];
  }
  for (const std::string& name : step.outputs) {
    result.outputs[name] = outputs.at(name);
  }
  return result;
}

GradientResult GradientResultOf(const StepGraph& step,
                                const TensorMap& outputs) {
  GradientResult result;
  result.loss = outputs.at(step.loss).data<float>()[0];
  for (const std::string& name : step.outputs) {
    result.outputs[name] = outputs.at(name);
  }
  for (const auto& [output, name] : step.gradients) {
    result.gradients[name] = outputs.at(output);
  }
  for (const auto& [output, name] : step.input_gradients) {
    result.input_gradients[name] = outputs.at(output);
  }
  return result;
}

}  // namespace onnx_fp8
