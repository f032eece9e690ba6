// SPDX-License-Identifier: Apache-2.0
// A run's folder as this program uses it: its settings are flags of `train`.
#pragma once

#include <string>

#include "cli/flags.h"
#include "onnx_fp8/run_folder.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The help of `train`: it lists the options of a run.
CommandHelp TrainHelp();

// The flags that a run's folder keeps: all except flags for one start only.
RunSettings KeptFlags(FlagMap flags);

// Replaces names of files by their content, so that a run reads them only once:
// the .json files of recipes, the file of `class_weights`, and the settings in
// the folder that `lora` names. Makes the paths of `auto_filter` and of that
// folder absolute.
void ResolveFiles(const OptionSet& options, FlagMap* saved);

// Where the newest checkpoint of a run lies, or the best one. Errors: there is
// no best one.
std::string CheckpointFolder(const std::string& folder, bool best);

// The configuration of a run; its settings are KeptFlags. Errors:
// RunFolder::Load's.
RunConfig LoadRun(const RunFolder& folder);

// Fills in the flags of `train` with which the run was started. Errors: flags
// in the config that this program does not know.
void FillFrom(const RunConfig& config, Flags& flags);

// The options of the session that trained a run, with the run's own copy of the
// model. The budgets are the caller's. Errors: FillFrom's.
SessionOptions RunSessionOptions(const RunConfig& config,
                                 const Budgets& budgets);

}  // namespace onnx_fp8
