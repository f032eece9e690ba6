// SPDX-License-Identifier: Apache-2.0
#include "cli/run_session.h"

#include "cli/model_outputs.h"
#include "cli/train_flags.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {

void FillFrom(const RunConfig& config, Flags& flags) {
  try {
    flags.RequireKnown(config.flags);
    flags.Fill(config.flags);
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
  // Only the checkpoint's weights and scales count.
  values.init.clear();
  values.session.recipe.scales.clear();
  try {
    SessionOptions options = values.MakeSession(flags);
    options.budgets = budgets;
    options.loss.logits = LossOutput(options.loss, config.model, budgets);
    return options;
  } catch (const UsageError& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
}

}  // namespace onnx_fp8
