// SPDX-License-Identifier: Apache-2.0
#include "cli/ort_training.h"

#include <cstdio>

#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {
namespace {

std::string Digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

FlagMap FlagsOfOrtArtifacts(const OrtArtifacts& artifacts,
                            const std::string& model, bool keeps_optimizer) {
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

}  // namespace onnx_fp8
