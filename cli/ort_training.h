// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/flags.h"
#include "training/ort_artifacts.h"

namespace onnx_fp8 {

// Writes the forward model of the artifacts, with the weights of their
// checkpoint, to `model`. Returns the flags of `train` that say what the
// artifacts say: MODEL, the loss, the trained tensors, and the optimizer unless
// `keeps_optimizer`.
FlagMap FlagsOfOrtArtifacts(const OrtArtifacts& artifacts,
                            const std::string& model, bool keeps_optimizer);

}  // namespace onnx_fp8
