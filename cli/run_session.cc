// SPDX-License-Identifier: Apache-2.0
#include "cli/run_session.h"

#include "base/check.h"
#include "cli/old_flags.h"
#include "cli/train_flags.h"
#include "training/step/draw_weights.h"

namespace onnx_fp8 {
namespace {

// Flags that hold for one start of a run only: its place, other outputs, how
// much of the machine a file may use, choices for the speed of a machine. No
// config decides these, whoever wrote it.
constexpr const char* kOfOneStart[] = {"MODEL",
                                       "--out",
                                       "--resume",
                                       "--json",
                                       "--profile",
                                       "--memory-report",
                                       "--profile-summary",
                                       "--timeline",
                                       "--timeline-steps",
                                       "--budget",
                                       "--dump-passes",
                                       "--mesh",
                                       "--job-secret",
                                       "--insecure",
                                       "--shard",
                                       "--gather-dtype",
                                       "--bucket-bytes",
                                       "--no-overlap",
                                       "--ort-training",
                                       "--checkpoint",
                                       "--tune",
                                       "--nondeterministic"};

}  // namespace

RunSettings KeptFlags(FlagMap flags) {
  for (const char* flag : kOfOneStart) flags.erase(flag);
  return flags;
}

std::string CheckpointFolder(const std::string& folder, bool best) {
  if (!best) return folder;
  Check(RunFolder(BestFolder(folder)).HasCheckpoint(), "[", folder,
        "] holds no best checkpoint: `onnx-fp8 train --save-best` keeps one");
  return BestFolder(folder);
}

RunConfig LoadRun(const RunFolder& folder) {
  RunConfig config = folder.Load();
  config.settings = KeptFlags(std::move(config.settings));
  if (!config.loss.empty()) config.settings["--loss"] = {config.loss};
  try {
    TranslateOldFlags(&config.settings);
  } catch (const Error& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
  if (config.format == 1) config.settings["--no-tie"] = {};
  return config;
}

void FillFrom(const RunConfig& config, Flags& flags) {
  try {
    flags.RequireKnown(config.settings);
    flags.Fill(config.settings);
  } catch (const UsageError& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
}

SessionOptions RunSessionOptions(const RunConfig& config,
                                 const Budgets& budgets) {
  Flags flags("train", "");
  TrainFlags values;
  values.AddTo(flags, true);
  flags.Parse({});
  FillFrom(config, flags);
  values.model = config.model;
  // Only the checkpoint's weights and scales count. Drawn weights stand for
  // data that the model's file lacks.
  if (!IsDrawn(values.init)) values.init.clear();
  values.session.recipe.scales.clear();
  try {
    SessionOptions options = values.MakeSession(flags);
    options.budgets = budgets;
    return options;
  } catch (const UsageError& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
}

}  // namespace onnx_fp8
