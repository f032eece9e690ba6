// SPDX-License-Identifier: Apache-2.0
//
// A run's folder as the program uses it: its settings are flags of `train`.
#pragma once

#include "cli/flags.h"
#include "onnx_fp8/run_folder.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The flags that a run's folder keeps: those of one start only go.
RunSettings KeptFlags(FlagMap flags);

// The configuration of a run, whose settings are KeptFlags. Errors:
// RunFolder::Load's.
RunConfig LoadRun(const RunFolder& folder);

// Fills in the flags of `train` that the run was started with. Errors: flags in
// the config that this program does not know.
void FillFrom(const RunConfig& config, Flags& flags);

// The session that a run was trained with, on the run's own copy of the model.
// The budgets are the caller's. Errors: FillFrom's.
SessionOptions RunSessionOptions(const RunConfig& config,
                                 const Budgets& budgets);

}  // namespace onnx_fp8
