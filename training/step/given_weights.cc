// SPDX-License-Identifier: Apache-2.0
#include "training/step/given_weights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "onnx_fp8/lora_spec.h"
#include "onnx_fp8/option_error.h"
#include "training/state/masters.h"
#include "training/step/draw_weights.h"
#include "training/step/rename_weights.h"

namespace onnx_fp8 {

std::string WeightsOf(const SessionOptions& options) {
  if (!options.weights.empty()) return options.weights;
  return IsDrawn(options.init) ? std::string() : options.init;
}

void LeaveWeights(SessionOptions* options) {
  if (!options->lora.empty()) {
    LoraSpec spec = ParseLora(options->lora);
    if (!spec.targets.empty()) {
      spec.folder.clear();
      options->lora = LoraText(spec);
    }
  }
  if (WeightsOf(*options).empty()) return;
  options->weights.clear();
  options->rename.clear();
  options->init.clear();
  options->lacks_weights = true;
}

void CheckWeightOptions(const SessionOptions& options) {
  if (!options.weights.empty() && !options.init.empty() &&
      !IsDrawn(options.init)) {
    throw OptionError("`init`: expected normal:STD beside `weights`, got " +
                      options.init);
  }
  if (!options.rename.empty() && WeightsOf(options).empty()) {
    throw OptionError("`rename` needs `weights`");
  }
  if (IsDrawn(options.init)) CheckDrawn(options.init);
  CheckRenames(options.rename);
}

GivenWeights OpenWeights(const SessionOptions& options) {
  GivenWeights given = {.path = WeightsOf(options)};
  WeightFiles files = ReadWeightFiles(given.path);
  Check(!files.tensors.empty(), "[", given.path,
        "] expected weights, got none");
  given.remark = files.remark;
  JoinCorrections(&files.tensors);  // of a checkpoint
  given.weights = DecodeScaled(std::move(files));
  RenameWeights(options.rename, given.path, &given.weights);
  return given;
}

std::set<std::string> NamesOfWeight(const ExportRecord& record,
                                    const std::string& initializer,
                                    const Shape& shape) {
  std::set<std::string> names = {initializer};
  const TensorRecord* entry = record.Find(initializer, shape);
  if (entry && !entry->key.empty()) names.insert(entry->key);
  const std::set<std::string> own = names;
  for (const std::vector<std::string>& group : record.tied) {
    const bool ties = std::ranges::any_of(
        group, [&](const std::string& key) { return own.contains(key); });
    if (ties) names.insert(group.begin(), group.end());
  }
  return names;
}

MissingData WithoutWeights(const MissingData& missing,
                           const StoredWeights& weights, const Graph& graph) {
  if (weights.empty()) return missing;
  const ExportRecord record = ReadExportRecord(graph);
  MissingData without = {.files = missing.files};
  for (const std::string& name : missing.tensors) {
    const Value* value = graph.Find(name);
    const bool known = value && value->shape;
    const std::set<std::string> names =
        known ? NamesOfWeight(record, name, *value->shape)
              : std::set<std::string>{name};
    const bool held = std::ranges::any_of(
        names, [&](const std::string& key) { return weights.contains(key); });
    if (!held) without.tensors.insert(name);
  }
  return without;
}

}  // namespace onnx_fp8
