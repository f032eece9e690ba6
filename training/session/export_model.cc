// SPDX-License-Identifier: Apache-2.0
#include "training/session/export_model.h"

#include <optional>

#include "base/check.h"
#include "data/safetensors.h"
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

std::vector<std::string> ExportTorch(const TrainingModel& model,
                                     const SourceMap& weights,
                                     const StateStore& state, int64_t batches,
                                     const std::string& path) {
  std::vector<std::string> remarks;
  SourceMap arrays = ToTorch(model.WithCopies(MergeAdapters(model, weights)),
                             model.AllNames(), &remarks);
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
  WriteSafetensors(path, arrays);
  return remarks;
}

}  // namespace onnx_fp8
