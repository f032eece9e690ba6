// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/run_folder.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Fills in the flags of `train` with which the run was started. Errors: flags
// in the config that this program does not know.
void FillFrom(const RunConfig& config, Flags& flags);

// The options of the session that trained a run, with the run's own copy of the
// model. The budgets are the caller's. Errors: FillFrom's.
SessionOptions RunSessionOptions(const RunConfig& config,
                                 const Budgets& budgets);

}  // namespace onnx_fp8
