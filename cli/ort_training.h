// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/flags.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// Writes the forward model of the artifacts in `folder`, with the weights of
// their checkpoint, to `model`. Returns the flags of `train` that say what the
// artifacts say: MODEL, the loss, the trained tensors, and the optimizer unless
// `keeps_optimizer`. Errors: ReadOrtArtifacts'.
FlagMap FlagsOfOrtArtifacts(const std::string& folder, const std::string& model,
                            bool keeps_optimizer, const Budgets& budgets);

}  // namespace onnx_fp8
