// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_file.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/step_notes.h"
#include "graph/onnx/written_file.h"
#include "graph/passes/dead_code.h"
#include "graph/views.h"
#include "onnx_fp8/recipe_text.h"
#include "training/make_provider.h"
#include "training/state/masters.h"
#include "training/step/pipelines.h"
#include "training/step/step_graph.h"
#include "training/step/step_settings.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

// Puts outputs in the file's order; removes outputs that only the session
// reads, but for the largest update, which nothing else in the graph reads.
void Arrange(StepGraph& step) {
  Graph& graph = *step.graph;
  std::vector<Value*> outputs;
  if (!step.loss.empty()) outputs.push_back(graph.Find(step.loss));
  for (const std::string& name : step.outputs) {
    Value* value = graph.Find(name);
    if (std::ranges::find(outputs, value) == outputs.end()) {
      outputs.push_back(value);
    }
  }
  if (!step.update_amax.empty()) {
    outputs.push_back(graph.Find(step.update_amax));
  }
  graph.outputs = std::move(outputs);
  RemoveDeadCode(graph);
}

// State that another file of the step moves becomes an input of this one too.
void AddInputs(Graph& graph, const Graph& mover) {
  auto moved_by = [](const Graph& g) {
    std::unordered_set<std::string_view> names;
    for (const StateBinding& b : g.state) names.insert(b.state->name);
    return names;
  };
  const auto there = moved_by(mover), here = moved_by(graph);
  for (Value* value : graph.Initializers()) {
    bool moved = there.contains(value->name) && !here.contains(value->name);
    if (moved && !value->uses.empty()) graph.inputs.push_back(value);
  }
}

// The value that an output only passes on.
std::string Behind(const Graph& graph, const std::string& output) {
  const Value* value = graph.Find(output);
  return value ? BehindCopies(value)->name : "";
}

// The facts of the step that its graph does not hold. Call it before Arrange
// removes the outputs that only a session reads.
StepNotes MakeNotes(const StepGraph& step, const SessionOptions& options,
                    const TrainingModel& model) {
  const Graph& graph = *step.graph;
  StepNotes notes;
  notes.part = step.kind == StepKind::kTrain   ? "whole"
               : step.kind == StepKind::kMicro ? "micro"
                                               : "apply";
  notes.settings = StepSettings(options);
  notes.values = {{"lr", step.lr},
                  {"loss", step.loss},
                  {"counted", step.counted},
                  {"grad_norm", step.grad_norm},
                  {"ok", step.ok},
                  {"update_amax", step.update_amax},
                  {"loss_scale", Behind(graph, step.loss_scale)}};
  if (step.kind == StepKind::kTrain && !step.amax.empty()) {
    notes.values["amax"] = Behind(graph, step.amax);
    notes.amax_labels = step.fp8.labels;
  }
  std::erase_if(notes.values, [](const auto& v) { return v.second.empty(); });
  for (const TiedCopy& copy : model.copies) {
    notes.copies.push_back(
        {copy.name, copy.torch, copy.first, copy.transposed});
  }
  return notes;
}

// The roles and names of the initializers that are left.
void AddRoles(const Graph& graph, const ParameterNames& names,
              StepNotes* notes) {
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kNone) continue;
    notes->roles[value->name] = value->role;
    auto name = names.find(value->name);
    if (name != names.end()) notes->names.insert(*name);
  }
}

// Puts in the numbers of weights that the graph keeps as bfloat16s.
void FillMasters(const SessionOptions& options, const TrainingModel& model,
                 Graph* graph) {
  const Masters masters(*model.graph, false, options.optimizer);
  for (const Value* weight : graph->Initializers()) {
    if (!IsHalfOfWeight(*weight)) continue;
    const Tensor& first = model.graph->Find(weight->name)->data;
    for (const auto& [name, kept] : masters.Encoded(weight->name, first)) {
      if (Value* value = graph->Find(name)) value->data = kept;
    }
  }
}

void WriteGraph(StepGraph step, const SessionOptions& options,
                const TrainingModel& model, const std::string& path,
                const WriteOptions& write, const Graph* mover = nullptr) {
  StepNotes notes = MakeNotes(step, options, model);
  Arrange(step);
  Graph& graph = *step.graph;
  FillMasters(options, model, &graph);
  if (mover) AddInputs(graph, *mover);
  AddRoles(graph, model.names, &notes);
  const std::string& seed = step.gradient_names.seed;
  if (graph.Find(seed)) notes.values["seed"] = seed;
  graph.metadata[kRecipeNote] = RecipeText(options.recipe);
  if (!step.fp8.slots.empty()) {
    graph.metadata[kScaleSlotsNote] = SlotsText(step.fp8.slots);
  }
  graph.metadata[kStepNotes] = NotesText(notes);
  WriteModel(graph, path, write);
}

}  // namespace

struct StepFile::Source {
  explicit Source(const SessionOptions& session)
      : options(session),
        runner(MakePassRunner(options)),
        model(LoadTrainingModel(options, runner)) {}

  SessionOptions options;
  PassRunner runner;
  TrainingModel model;
};

StepFile::StepFile(const SessionOptions& options)
    : source_(std::make_unique<Source>(options)) {
  RequireNoForward(*source_->model.graph);
}

StepFile::~StepFile() = default;

std::vector<InputInfo> StepFile::Inputs() const {
  return source_->model.Inputs();
}

const std::vector<std::string>& StepFile::notes() const {
  return source_->model.notes;
}

void StepFile::Write(const std::map<std::string, Shape>& shapes,
                     const InputValues& values, const std::string& path,
                     const WriteOptions& write) {
  SessionOptions options = source_->options;
  options.loss = source_->model.loss;  // with its logits named
  auto evaluator = MakeEvaluator();
  StepSource source =
      MakeStepSource(options, source_->model, *evaluator, source_->runner);
  source.model_outputs = true;
  // A session on the file chooses both.
  source.recompute.clear();
  source.primary_weights = false;
  source.frozen = "float32";
  source.fp8.own_frozen_scales = false;
  source.frozen_halves.clear();
  if (options.frozen != "float32") {
    source_->model.notes.push_back(Concat(
        "`frozen` ", options.frozen,
        " is no part of a file: its step reads frozen weights as floats"));
  }
  if (options.primary_weights == "fp8") {
    source_->model.notes.push_back(
        "`primary_weights` fp8 is no part of a file: its step makes FP8 codes "
        "of weights anew, unless `train()` of the file takes the option");
  }
  bool whole = options.grad_accum == 1;
  StepGraph step =
      BuildStepGraph(source, whole ? StepKind::kTrain : StepKind::kMicro,
                     shapes, false, values);
  // The axis of the classes is a fact of the step, for evaluations of it.
  if (step.loss_spec.class_axis) {
    const int64_t axis = *step.loss_spec.class_axis;
    if (axis > 1 && !options.loss.class_axis) {
      source_->model.notes.push_back(Concat(
          "the classes lie along axis ", axis, " of ", step.loss_spec.logits,
          ", as those of tokens do (`class_axis`)"));
    }
    if (axis > 1 || options.loss.class_axis) options.loss = step.loss_spec;
  }
  std::shared_ptr<const Graph> mover;
  if (!whole) {
    MicroSums sums;
    sums.Add(step);
    sums.batches = options.grad_accum;
    StepGraph apply = BuildApplyGraph(source, sums, {.slots = step.fp8.slots});
    mover = apply.graph;
    WriteGraph(std::move(apply), options, source_->model, ApplyPath(path),
               write);
  }
  WriteGraph(std::move(step), options, source_->model, path, write,
             mover.get());
}

}  // namespace onnx_fp8
