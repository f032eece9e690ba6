// SPDX-License-Identifier: Apache-2.0
#include "cli/ort_training.h"

#include <cstdio>

#include "graph/onnx/onnx_io.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/artifacts/ort_state.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

std::string Digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Writes the forward model of the artifacts to `model`. Returns the flags of
// `train` that say the same as the artifacts.
FlagMap FlagsOf(const OrtArtifacts& artifacts, const std::string& model,
                bool keeps_optimizer) {
  WriteModel(*artifacts.forward.graph, model);
  FlagMap flags = {{"MODEL", {model}},
                   {"--loss", {artifacts.forward.loss}},
                   {"--freeze", {"*"}},
                   {"--no-tie", {}}};
  const std::string& labels = artifacts.forward.labels;
  if (!labels.empty()) flags["--label"] = {labels};
  for (const auto& [name, tensor] : artifacts.checkpoint.trained) {
    flags["--train"].push_back(name);
  }
  if (keeps_optimizer || !artifacts.optimizer) return flags;
  if (!artifacts.checkpoint.groups.empty()) {
    flags["--lr"] = {Digits(double{artifacts.checkpoint.groups[0].initial_lr})};
  }
  const OptimizerSpec& spec = *artifacts.optimizer;
  flags["--optimizer"] = {spec.kind};
  flags["--weight-decay"] = {Digits(*spec.weight_decay)};
  if (spec.kind != "sgd") {
    flags["--betas"] = {Digits(spec.beta1), Digits(spec.beta2)};
    flags["--eps"] = {Digits(spec.eps)};
  }
  return flags;
}

}  // namespace

OrtStart::OrtStart(Flags& flags) {
  if (flags.Given("MODEL")) {
    throw OptionError("expected one of `MODEL` and `ort_training`");
  }
  const std::string folder = flags.Text("ort_training");
  const std::string checkpoint = flags.Text("checkpoint");
  OrtArtifacts artifacts =
      ReadOrtArtifacts(folder, BudgetsOf(flags), checkpoint);
  flags.Fill(
      FlagsOf(artifacts, folder_ / "model.onnx", flags.Given("optimizer")));
  moments_ = OptimizerState(
      artifacts.checkpoint, flags.Text("optimizer"),
      checkpoint.empty() ? OrtCheckpointFile(folder) : checkpoint);
  if (!moments_.empty() && flags.Text("moments") != "float32") {
    throw OptionError(Concat(
        "`ort_training`: expected `moments` float32 for the moments of a "
        "checkpoint, got ",
        flags.Text("moments")));
  }
  if (!moments_.empty() && DividesState(flags)) {
    throw OptionError(
        "`ort_training`: expected whole state on each rank for the moments of "
        "a checkpoint, got `shard` or tp");
  }
}

void OrtStart::GoOn(TrainingSession& session) const {
  if (moments_.empty()) return;
  SessionState state = session.State();
  for (const auto& [name, tensor] : moments_) state.tensors[name] = tensor;
  session.SetState(state);
}

}  // namespace onnx_fp8
