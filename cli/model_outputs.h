// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Name of the model output that the loss reads: loss.logits, or the first one
// (unless the model computes the loss itself). Errors: no such output; the
// message lists the outputs; a file that is a training step already.
std::string LossOutput(const LossSpec& loss, const std::string& model,
                       const Budgets& budgets);

// The same for a loss with gradients. Errors: also a forward pass in FP8.
std::string TrainedOutput(const LossSpec& loss, const std::string& model,
                          const Budgets& budgets);

}  // namespace onnx_fp8
