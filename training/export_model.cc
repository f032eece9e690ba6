// SPDX-License-Identifier: Apache-2.0
#include "training/export_model.h"

#include "base/check.h"
#include "graph/onnx/export_weights.h"
#include "graph/onnx/written_file.h"

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

}  // namespace

void ExportModel(const TrainingModel& model, const SourceMap& state,
                 const std::string& path, const WriteOptions& write,
                 const std::string& into) {
  const std::string& file = model.graph->file;
  if (!into.empty()) {
    Check(model.step != nullptr, "[", file, "] expected a training step for ",
          into, ", got a model, which takes its own weights");
    ExportWithWeights(into, path,
                      model.WithCopies(WeightsOf(*model.graph, state)), write);
  } else if (!model.step) {
    ExportWithWeights(file, path, model.WithCopies(state), write);
  } else {
    const FileStep& step = *model.step;
    if (step.apply) {
      ExportWithWeights(step.apply_path, ApplyPath(path),
                        Own(state, step.apply_notes), write);
    }
    ExportWithWeights(file, path, Own(state, step.notes), write);
  }
}

}  // namespace onnx_fp8
