// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "onnx_fp8/session.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// Results of a run of the step's graph on a batch, from its outputs on the
// host.
EvalResult EvalResultOf(const StepGraph& step, const TensorMap& feeds,
                        const TensorMap& outputs);
GradientResult GradientResultOf(const StepGraph& step, const TensorMap& feeds,
                                const TensorMap& outputs);
// The casts with the numbers that the step has measured, which are its output
// `cast_numbers`.
std::vector<MeasuredCast> CastsIn(std::vector<MeasuredCast> casts,
                                  const Tensor& numbers);

}  // namespace onnx_fp8
