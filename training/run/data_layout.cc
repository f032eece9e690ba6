// SPDX-License-Identifier: Apache-2.0
#include "training/run/data_layout.h"

#include <algorithm>

#include "base/check.h"
#include "base/joined.h"
#include "onnx_fp8/option_error.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kDefaultBatch = 8;

std::string AxisName(const InputInfo& input, size_t axis) {
  return axis < input.axis_names.size() ? input.axis_names[axis] : "";
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void CheckWholeNames(const std::vector<DatasetInput>& inputs,
                     const DataOptions& options) {
  std::vector<std::string> names;
  for (const DatasetInput& input : inputs) names.push_back(input.name);
  for (const std::string& name : options.whole) {
    if (Contains(names, name)) continue;
    throw OptionError("`whole`: the model has no input " + name + ", only " +
                      Joined(names));
  }
}

// The first input that can hold samples; null if there is none.
const InputInfo* BatchInput(const std::vector<InputInfo>& inputs,
                            const LossSpec& loss, const DataOptions& options) {
  for (const InputInfo& input : inputs) {
    bool label = input.is_label || input.name == loss.label;
    if (!label && !input.shape.empty() &&
        !Contains(options.whole, input.name)) {
      return &input;
    }
  }
  return nullptr;
}

int64_t BatchSize(const InputInfo& input, const DataOptions& options) {
  int64_t exported = input.shape[0];
  if (exported < 0) {
    return options.batch_size > 0 ? options.batch_size : kDefaultBatch;
  }
  if (options.batch_size > 0 && options.batch_size != exported) {
    throw OptionError(
        Concat("`batch_size`: the model was exported for batches "
               "of ",
               exported, ", got ", options.batch_size));
  }
  return exported;
}

int64_t SequenceLength(const std::vector<InputInfo>& inputs,
                       const LossSpec& loss, const DataOptions& options) {
  for (const InputInfo& input : inputs) {
    bool tokens = input.name != loss.label && IsInteger(input.dtype) &&
                  input.shape.size() == 2;
    if (!tokens || input.shape[1] < 0) continue;
    if (options.seq_len > 0 && options.seq_len != input.shape[1]) {
      throw OptionError(Concat("`seq_len`: the model was exported for ",
                               input.shape[1], " tokens, got ",
                               options.seq_len));
    }
    return input.shape[1];
  }
  return options.seq_len;
}

void MarkLabels(const std::vector<InputInfo>& infos, const LossSpec& loss,
                int64_t ignored, std::vector<DatasetInput>* inputs) {
  const LossKind* kind = FindLoss(loss.kind);
  const bool counts_all = kind && kind->label != DType::kInt64;
  for (DatasetInput& input : *inputs) {
    const auto info = std::ranges::find(infos, input.name, &InputInfo::name);
    input.is_label =
        input.name == loss.label || (info != infos.end() && info->is_label);
    if (input.is_label && !counts_all) input.ignored = ignored;
  }
}

}  // namespace

DataLayout LayOutData(const std::vector<InputInfo>& inputs,
                      const LossSpec& loss, const DataOptions& options) {
  DataLayout layout;
  layout.label = loss.label;
  layout.token_dtype = options.token_dtype;
  if (options.eod && options.segments.empty()) {
    throw OptionError("`eod` needs `segment_ids`");
  }
  layout.eod = options.eod;
  layout.segments = options.segments;
  layout.ignored = loss.ignore_index.value_or(layout.ignored);
  const InputInfo* batch = BatchInput(inputs, loss, options);
  Check(batch != nullptr,
        "expected a model with an input that has a sample axis, got none");
  const LossKind* kind = FindLoss(loss.kind);
  bool label_listed = false;
  for (const InputInfo& input : inputs) {
    DatasetInput entry{input.name, input.dtype};
    entry.looked_up = input.looked_up;
    if (input.name == loss.label) {
      label_listed = true;
    } else {
      const bool other = input.shape.empty() ||
                         input.shape[0] != batch->shape[0] ||
                         AxisName(input, 0) != AxisName(*batch, 0);
      entry.whole = input.is_label ? input.shape.empty() : other;
    }
    layout.inputs.push_back(entry);
  }
  if (kind && !label_listed) {
    layout.inputs.push_back({loss.label, kind->label, false, kind->soft});
  }
  MarkLabels(inputs, loss, layout.ignored, &layout.inputs);
  CheckWholeNames(layout.inputs, options);
  for (DatasetInput& input : layout.inputs) {
    if (Contains(options.whole, input.name)) input.whole = true;
  }
  layout.batch_size = BatchSize(*batch, options);
  layout.fixed_batch = batch->shape[0] >= 0;
  layout.seq_len = SequenceLength(inputs, loss, options);
  return layout;
}

DatasetSpec MakeDatasetSpec(const std::vector<std::string>& files,
                            const DataLayout& layout, const Budgets& budgets) {
  DatasetSpec spec;
  spec.files = files;
  spec.inputs = layout.inputs;
  spec.batch_size = layout.batch_size;
  spec.shuffle = false;
  spec.drop_last = false;
  spec.label = layout.label;
  spec.token_dtype = layout.token_dtype;
  spec.seq_len = layout.seq_len;
  spec.eod = layout.eod;
  spec.segments = layout.segments;
  spec.ignored = layout.ignored;
  spec.budgets = budgets;
  return spec;
}

int64_t CountSamples(const TensorMap& batch, const DataLayout& layout) {
  for (const DatasetInput& input : layout.inputs) {
    if (!input.whole) return batch.at(input.name).dim(0);
  }
  return 0;
}

int64_t CountTokens(const TensorMap& batch, const std::string& label) {
  auto it = batch.find(label);
  bool tokens = it != batch.end() && IsInteger(it->second.dtype()) &&
                it->second.rank() == 2 && it->second.dim(1) > 1;
  return tokens ? it->second.size() : 0;
}

}  // namespace onnx_fp8
