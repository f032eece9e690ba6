// SPDX-License-Identifier: Apache-2.0
#include "training/session/export_model.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "data/safetensors.h"
#include "data/served_folder.h"
#include "graph/batch_statistics.h"
#include "graph/onnx/export_weights.h"
#include "graph/onnx/written_file.h"
#include "training/step/adapters.h"
#include "training/step/torch_weights.h"

namespace onnx_fp8 {
namespace {

// The part of the state that one file of a step holds.
SourceMap Own(const SourceMap& state, const StepNotes& notes) {
  SourceMap own;
  for (const auto& [name, role] : notes.roles) {
    auto it = state.find(name);
    if (it != state.end()) own.insert(*it);
  }
  return own;
}

// The part that a model has too.
SourceMap WeightsOf(const Graph& step, const SourceMap& state) {
  SourceMap weights;
  for (const auto& [name, tensor] : state) {
    Role role = step.Find(name)->role;
    bool own = role == Role::kParameter || role == Role::kFrozen ||
               role == Role::kStatistic || role == Role::kBound;
    if (own) weights.emplace(name, tensor);
  }
  return weights;
}

// If the file or the initial weights tell it.
std::optional<int64_t> BatchesBefore(const TrainingModel& model,
                                     const StateStore& state,
                                     const std::string& key) {
  if (state.Has(key)) return IntAt(state.Host(key), 0);
  const Value* held = model.graph->Find(key);
  bool count = held && held->is_initializer() && IsInteger(held->dtype) &&
               held->data.size() == 1;
  if (!count) return std::nullopt;
  return IntAt(held->data, 0);
}

// Adds statistics that stay: the file may hold one together with a tensor that
// is trained.
SourceMap WithStatistics(const TrainingModel& model, SourceMap state) {
  for (const auto& s : BatchStatistics(*model.graph, {})) {
    state.try_emplace(s.value->name, s.value->data);
  }
  return state;
}

constexpr std::string_view kWeightEnd = ".weight";

// Floats become floats of that dtype; all else stays.
TensorSource InDType(const TensorSource& source, DType dtype) {
  if (!IsFloat(source.dtype()) || source.dtype() == dtype) return source;
  return TensorSource(dtype, source.shape(), [source, dtype] {
    return ConvertTo(source.Pull(), dtype);
  });
}

void Append(std::vector<std::string> more, std::vector<std::string>* remarks) {
  std::ranges::move(more, std::back_inserter(*remarks));
}

// In which ways a forward with codes differs from an evaluation of the run.
std::vector<std::string> ForwardRemarks(const SessionOptions& options,
                                        int unknown_attention) {
  std::vector<std::string> remarks;
  if (!options.segment_ids.empty()) {
    remarks.push_back(
        Concat("a row of the forward is one document: it does not read "
               "`segment_ids` ",
               options.segment_ids));
  }
  if (options.dtype != DType::kFloat) {
    remarks.push_back(Concat(
        "a sum in another order than an evaluation's may be rounded to a "
        "neighbor in ",
        Name(options.dtype)));
  }
  if (unknown_attention > 0) {
    remarks.push_back(Concat(
        unknown_attention, " of the products behind a Softmax ",
        unknown_attention == 1 ? "is" : "are",
        " of a form that is not known as attention's with open axes, and ",
        unknown_attention == 1 ? "is" : "are",
        " rounded node by node: outputs may differ from an evaluation's by "
        "that"));
  }
  return remarks;
}

}  // namespace

void ExportModel(const TrainingModel& model, const SourceMap& state,
                 const std::string& path, const WriteOptions& write,
                 const std::string& into) {
  const std::string& file = model.graph->file;
  if (!into.empty()) {
    Check(model.step != nullptr, "[", file, "] expected a training step for ",
          into, ", got a model, which takes its own weights");
    ExportWithWeights(into, path,
                      model.WithCopies(WeightsOf(*model.graph, state)), write,
                      ExportMode::kEvaluation);
  } else if (!model.step) {
    const SourceMap merged = MergeAdapters(model, state);
    ExportWithWeights(file, path,
                      model.WithCopies(WithStatistics(model, merged)), write,
                      ExportMode::kEvaluation);
  } else {
    const FileStep& step = *model.step;
    if (step.apply) {
      ExportWithWeights(step.apply_path, ApplyPath(path),
                        Own(state, step.apply_notes), write);
    }
    ExportWithWeights(file, path, Own(state, step.notes), write);
  }
}

SourceMap StateDict(const TrainingModel& model, const SourceMap& weights,
                    const StateStore& state, int64_t batches,
                    std::vector<std::string>* remarks) {
  SourceMap arrays = ToTorch(model.WithCopies(MergeAdapters(model, weights)),
                             model.AllNames(), remarks);
  for (const auto& s : BatchStatistics(*model.graph, model.AllNames())) {
    auto kept = weights.find(s.value->name);
    arrays.insert_or_assign(s.key, kept == weights.end()
                                       ? TensorSource(s.value->data)
                                       : kept->second);
    std::optional<int64_t> before = BatchesBefore(model, state, s.count_key);
    if (s.count_key.empty() || (!before && !s.moves)) continue;
    int64_t count = before.value_or(0) + (s.moves ? batches : 0);
    arrays.insert_or_assign(s.count_key, Tensor::Scalar(count));
  }
  return arrays;
}

std::vector<std::string> ExportTorch(const TrainingModel& model,
                                     const SourceMap& weights,
                                     const StateStore& state, int64_t batches,
                                     const std::string& path) {
  std::vector<std::string> remarks;
  WriteSafetensors(path, StateDict(model, weights, state, batches, &remarks));
  return remarks;
}

std::vector<std::string> WriteServed(ServedSource source,
                                     const StateStore& state, int64_t batches,
                                     const ServedFiles& files) {
  const TrainingModel& model = source.model;
  const SessionOptions& options = source.options;
  const bool halves = files.format == ServedFormat::kBFloat16;
  std::vector<std::string> remarks;
  SourceMap arrays = StateDict(model, source.weights, state, batches, &remarks);
  const DType dtype = halves ? DType::kBFloat16 : options.dtype;
  if (halves && model.lora) {
    remarks.push_back("the adapters are merged into the weights in float32");
  }
  std::optional<ServedModel> served;
  ServedTensors tensors = {.dtype = dtype};
  if (!halves) {
    source.weights = MergeAdapters(model, std::move(source.weights));
    served.emplace(std::move(source));
    Append(served->Remarks(), &remarks);
  }
  if (files.format == ServedFormat::kOnnxFp8) {
    served->WriteOnnx(files.path, {files.external_data});
    Append(ForwardRemarks(options, served->unknown_attention()), &remarks);
    return remarks;
  }
  if (served) tensors.layers = served->TakeLayers(&arrays, &remarks);
  for (const auto& [name, array] : arrays) {
    tensors.tensors.emplace(name, InDType(array, dtype));
    const bool matrix = name.ends_with(kWeightEnd) && array.shape().size() > 1;
    if (!matrix) continue;
    tensors.whole.push_back(name.substr(0, name.size() - kWeightEnd.size()));
  }
  Append(WriteServedFolder(files.path, files.like, tensors), &remarks);
  return remarks;
}

}  // namespace onnx_fp8
