// SPDX-License-Identifier: Apache-2.0
#include "cli/ort_training.h"

#include <cstdio>

#include "graph/onnx/onnx_io.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/artifacts/ort_state.h"

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
  // The lists are one word each.
  std::string trained;
  for (const auto& [name, tensor] : artifacts.checkpoint.trained) {
    trained += (trained.empty() ? "" : ",") + name;
  }
  flags["--train"] = {trained};
  if (keeps_optimizer || !artifacts.optimizer) return flags;
  if (!artifacts.checkpoint.groups.empty()) {
    flags["--lr"] = {Digits(double{artifacts.checkpoint.groups[0].initial_lr})};
  }
  const OptimizerSpec& spec = *artifacts.optimizer;
  flags["--optimizer"] = {spec.kind};
  flags["--weight-decay"] = {Digits(*spec.weight_decay)};
  if (spec.kind != "sgd") {
    flags["--betas"] = {Digits(spec.beta1) + "," + Digits(spec.beta2)};
    flags["--eps"] = {Digits(spec.eps)};
  }
  return flags;
}

}  // namespace

OrtStart::OrtStart(Flags& flags, TrainFlags& values) {
  if (flags.Given("MODEL")) {
    throw UsageError("expected one of MODEL and --ort-training");
  }
  const std::string& folder = values.ort_training;
  const std::string file =
      values.checkpoint.empty() ? OrtCheckpointFile(folder) : values.checkpoint;
  OrtArtifacts artifacts = ReadOrtArtifacts(
      folder, values.session.budgets.Make(), values.checkpoint);
  flags.Fill(
      FlagsOf(artifacts, folder_ / "model.onnx", flags.Given("--optimizer")));
  moments_ =
      OptimizerState(artifacts.checkpoint, values.optimizer.optimizer, file);
  if (!moments_.empty() && values.shard.DividesState()) {
    throw UsageError(
        "--ort-training: expected whole state on each rank for the moments of "
        "a checkpoint, got --shard or tp");
  }
}

void OrtStart::GoOn(TrainingSession& session) const {
  if (moments_.empty()) return;
  SessionState state = session.State();
  for (const auto& [name, tensor] : moments_) state.tensors[name] = tensor;
  session.SetState(state);
}

}  // namespace onnx_fp8
