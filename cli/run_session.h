// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/run_folder.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The session that a run was trained with, on the run's own copy of the model.
// Errors: flags in the config that this program does not know.
SessionOptions RunSessionOptions(const RunConfig& config);

}  // namespace onnx_fp8
