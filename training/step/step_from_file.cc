// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_from_file.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "graph/op_facts.h"
#include "graph/views.h"
#include "optimizers/optimizer.h"
#include "training/state/masters.h"
#include "training/step/loss.h"
#include "training/step/step_report.h"
#include "training/step/step_settings.h"

namespace onnx_fp8 {
namespace {

// Purposes of values whose numbers a session reports, besides the loss.
constexpr const char* kReported[] = {"counted", "grad_norm",  "ok",
                                     "amax",    "loss_scale", "update_amax"};
constexpr char kGradientSum[] = "micro.grad.";

bool IsWeight(Role role) {
  return role == Role::kParameter || role == Role::kFrozen;
}

bool IsOneNumber(const Value& value) {
  return value.concrete() && NumElements(*value.shape) == 1;
}

// --- notes

StepNotes NotesOf(const Graph& graph, Written kind) {
  auto text = graph.metadata.find(kStepNotes);
  Check(text != graph.metadata.end(), DescribeWritten(graph, kind),
        ", an older version: expected its notes as the metadata ", kStepNotes,
        "; write it anew from the model");
  Check(!graph.state.empty(), DescribeWritten(graph, kind),
        ": expected its bindings in training_info, got none");
  StepNotes notes = ParseNotes(text->second, graph.file);
  const std::string part = kind == Written::kStep        ? "whole"
                           : kind == Written::kMicroStep ? "micro"
                                                         : "apply";
  Check(notes.part == part, DescribeWritten(graph, kind),
        ": expected notes of the part ", part, ", got ", notes.part);
  return notes;
}

void CheckNotes(const Graph& graph, const StepNotes& notes) {
  for (const Value* value : graph.Initializers()) {
    Check(!IsWeight(value->role) || notes.names.contains(value->name), "[",
          graph.file, "] expected a PyTorch name for ", value->name,
          " among the notes of the step, got none");
  }
  for (const NotedCopy& copy : notes.copies) {
    const Value* first = graph.Find(copy.first);
    Check(first && IsWeight(first->role), "[", graph.file,
          "] expected a parameter ", copy.first,
          ", of which the notes of the "
          "step name the copy ",
          copy.name, ", got none");
    Check(!copy.transposed || first->rank() == 2, "[", graph.file,
          "] expected a matrix ", copy.first,
          ", of which the notes of the step "
          "name the transpose ",
          copy.name, ", got ", ToString(*first->shape));
  }
}

// The notes of a step of another program, as far as its graph shows them.
StepNotes ForeignNotes(const Graph& graph, const SessionOptions& options) {
  StepNotes notes;
  notes.part = "whole";
  SessionOptions none;
  none.loss = options.loss;
  notes.settings = StepSettings(none);
  for (const char* optimizer : {"optimizer", "weight_decay"}) {
    notes.settings[optimizer] = "its own";
  }
  for (const Value* value : graph.Initializers()) {
    if (value->role != Role::kNone) notes.roles[value->name] = value->role;
    if (value->role != Role::kNone && IsFloat(value->dtype)) {
      notes.names[value->name] = {value->name};
    }
  }
  for (const char* name : {"lr", "learning_rate"}) {
    const Value* value = graph.Find(name);
    bool takes = value && !value->producer && value->dtype == DType::kFloat &&
                 value->shape == Shape{} && value->role == Role::kNone;
    if (takes) notes.values["lr"] = name;
  }
  return notes;
}

// The output that is the loss, if the caller does not name it.
std::string ForeignLoss(const Graph& graph) {
  std::vector<std::string> numbers, all;
  const auto bound = NewState(graph);
  for (const Value* value : graph.outputs) {
    all.push_back(value->name);
    if (!bound.contains(value) && IsFloat(value->dtype) &&
        IsOneNumber(*value)) {
      numbers.push_back(value->name);
    }
  }
  if (std::ranges::count(numbers, "loss") > 0) return "output:loss";
  Check(numbers.size() == 1, "[", graph.file,
        "] is a training step of another program: expected the name of the "
        "output that is its loss, as in `loss` output:NAME, because ",
        numbers.empty() ? "none" : "more than one",
        " of its outputs is one float (", Joined(all), ")");
  return "output:" + numbers[0];
}

// --- the graph as a session's model

// The learning rate becomes an input with a default, which is none of the
// inputs that data feed.
void SetLearningRate(Graph& graph, const StepNotes& notes,
                     SessionOptions* options) {
  const std::string name = notes.Value("lr");
  if (name.empty()) return;
  Value* lr = graph.Find(name);
  Check(lr && !lr->producer && lr->dtype == DType::kFloat &&
            lr->shape == Shape{} && !IsState(lr->role),
        "[", graph.file, "] expected ", name,
        " to be the learning rate, an input of one float, got another value");
  std::erase(graph.inputs, lr);
  if (lr->is_initializer()) {
    options->optimizer.lr =
        DefaultRate(notes.settings, lr->data.data<float>()[0]);
  } else {
    lr->data = Tensor::Scalar(static_cast<float>(options->optimizer.lr));
  }
  lr->is_input = true;
}

// New state is no output of the model; the values that a session reports are.
void SetOutputs(Graph& graph, const StepNotes& notes) {
  const std::string loss = notes.Value("loss");
  const auto state = NewState(graph);
  std::erase_if(graph.outputs, [&](const Value* value) {
    return value->name != loss && state.contains(value);
  });
  for (const auto& [purpose, name] : notes.values) {
    Check(graph.Find(name) != nullptr, "[", graph.file, "] expected a value ",
          name, ", which is the step's ", purpose, ", got none");
  }
  for (const char* purpose : kReported) {
    Value* value = graph.Find(notes.Value(purpose));
    bool listed = std::ranges::count(graph.outputs, value) > 0;
    if (value && !listed) graph.outputs.push_back(value);
  }
}

void Prepare(Graph& graph, const StepNotes& notes, SessionOptions* options) {
  SetLearningRate(graph, notes, options);
  SetOutputs(graph, notes);
}

// --- micro-batches

// Errors: state that the two files hold with another type or other numbers. The
// caller may have fed new state back into one of them only.
void JoinState(Graph& graph, Graph& apply) {
  for (Value* value : apply.Initializers()) {
    if (value->role == Role::kNone) continue;
    const Value* here = graph.Find(value->name);
    if (!here) {
      graph.AddInitializer(value->name, value->data)->role = value->role;
      continue;
    }
    bool same = here->role == value->role && here->dtype == value->dtype &&
                here->shape == value->shape &&
                std::memcmp(here->data.raw(), value->data.raw(),
                            value->data.bytes()) == 0;
    Check(same, "[", apply.file, "] expected the tensor ", value->name,
          " as in ", graph.file, ", got another one");
    value->data = here->data;  // one of them is enough
  }
}

void OpenApply(FileStep* file, Graph& graph, SessionOptions* options) {
  file->apply_path = ApplyPath(graph.file);
  Check(PathExists(file->apply_path), "[", file->apply_path,
        "] expected the update that belongs to ", graph.file,
        ", got no such file");
  file->apply = ReadModel(file->apply_path, {.budgets = options->budgets});
  Written kind = WrittenAs(*file->apply);
  Check(kind == Written::kUpdate, "[", file->apply_path,
        "] expected the update that belongs to ", graph.file,
        ", got another file");
  file->apply_notes = NotesOf(*file->apply, kind);
  Check(file->apply_notes.settings == file->notes.settings, "[",
        file->apply_path, "] expected the update that belongs to ", graph.file,
        ", got that of a step with other settings");
  Prepare(*file->apply, file->apply_notes, options);
  JoinState(graph, *file->apply);
}

// --- values of a specialized graph

// The value of that purpose, a single number of that type. "" if the step has
// none.
std::string NumberOf(const Graph& graph, const StepNotes& notes,
                     const char* purpose, DType dtype) {
  std::string name = notes.Value(purpose);
  if (name.empty()) return "";
  const Value* value = graph.Find(name);
  Check(value && value->dtype == dtype && IsOneNumber(*value), "[", graph.file,
        "] expected one ", Name(dtype), " as the step's ", purpose, ", ", name,
        ", got another value");
  return name;
}

// The slots of the kept scales. Their state belongs to the graph even if only
// the update reads it.
void AddSlots(const Graph& from, StepGraph* step) {
  auto text = from.metadata.find(kScaleSlotsNote);
  if (text == from.metadata.end()) return;
  step->fp8.slots = ParseSlots(text->second);
  auto n = static_cast<int64_t>(step->fp8.slots.size());
  auto require = [&](const char* name, int64_t rank) {
    const Value* state = from.Find(name);
    Check(state && state->role == Role::kScale &&
              state->dtype == DType::kFloat && state->rank() == rank &&
              state->dim(-1) == n,
          "[", from.file, "] expected state ", name, " for the ", n,
          " scales of its metadata ", kScaleSlotsNote, ", got another");
    if (step->graph->Find(name)) return;
    step->graph->AddInitializer(name, state->data)->role = state->role;
  };
  if (n > 0) require(kScaleState, 1);
  if (AnyDelayed(step->fp8.slots)) require(kHistoryState, 2);
  for (const Node& node : step->graph->nodes()) {
    if (FactsOf(node).kind == OpKind::kScaleUpdate) {
      step->fp8.q_max = node.in(3);
    }
  }
}

// The nodes that read the parameter as numbers: behind its decoded copies, if
// it is kept as a bfloat16.
std::vector<Node*> ReadersOfNumbers(const Value* parameter) {
  if (!IsHalfOfWeight(*parameter)) return parameter->uses;
  std::vector<Node*> readers;
  for (const Node* decode : parameter->uses) {
    if (!decode->out(0)) continue;  // in a step of another program
    for (Node* reader : decode->out(0)->uses) readers.push_back(reader);
  }
  return readers;
}

// Parameters with their gradients: the operands of their updates, or what is
// added to their sums.
std::vector<std::pair<Value*, Value*>> GradientPairs(const Graph& graph) {
  std::vector<std::pair<Value*, Value*>> pairs;
  std::unordered_set<const Value*> named;
  for (const Node& node : graph.nodes()) {
    auto note = node.metadata.find(kGradientOf);
    if (note == node.metadata.end()) continue;
    Value* parameter = graph.Find(note->second);
    const bool fits = parameter && parameter->role == Role::kParameter &&
                      !node.inputs().empty() && node.in(0) &&
                      named.insert(parameter).second;
    if (fits) pairs.push_back({parameter, node.in(0)});
  }
  for (const StateBinding& binding : graph.state) {
    const Node* node = binding.next->producer;
    if (!node || named.contains(binding.state)) continue;
    Value* state = binding.state;
    // A decay that follows the update may make the next value.
    for (const Node* reader : ReadersOfNumbers(state)) {
      const int operand = FactsOf(*reader).gradient;
      if (state->role != Role::kParameter || operand < 0) continue;
      pairs.push_back({state, reader->in(static_cast<size_t>(operand))});
    }
    bool sum = state->role == Role::kSum && node->Is("Add") &&
               state->name.starts_with(kGradientSum);
    if (!sum) continue;
    Value* parameter =
        graph.Find(state->name.substr(std::strlen(kGradientSum)));
    if (!parameter || parameter->role != Role::kParameter) continue;
    pairs.push_back({parameter, node->in(node->in(0) == state ? 1 : 0)});
  }
  return pairs;
}

}  // namespace

std::shared_ptr<const FileStep> OpenFileStep(Graph& graph,
                                             SessionOptions* options) {
  auto file = std::make_shared<FileStep>();
  file->kind = WrittenAs(graph);
  const std::string what = DescribeWritten(graph, file->kind);
  Check(file->kind != Written::kUpdate, what,
        ": expected the file of its part for each micro-batch");
  if (file->kind == Written::kForeignStep) {
    if (options->loss.kind.empty()) options->loss.kind = ForeignLoss(graph);
    Check(OwnOutput(options->loss.kind).has_value(), what,
          ": expected the name of the output that is its loss, as in `loss` "
          "output:NAME, got ",
          options->loss.kind);
    file->notes = ForeignNotes(graph, *options);
  } else {
    file->notes = NotesOf(graph, file->kind);
  }
  CheckNotes(graph, file->notes);
  TakeStepSettings(file->notes.settings, what, options);
  bool whole = file->kind != Written::kMicroStep;
  Check(whole == (options->grad_accum == 1), what,
        ": expected a number of micro-batches above 1 for its part for each, "
        "and 1 for a whole step, got ",
        options->grad_accum);
  Prepare(graph, file->notes, options);
  if (!whole) OpenApply(file.get(), graph, options);
  return file;
}

void RequireOneProcess(const Graph& graph, const FileStep& file) {
  const std::string what = DescribeWritten(graph, file.kind);
  Check(file.kind != Written::kForeignStep, what,
        ": expected one process, because a file has no sums over ranks");
  Fail(what,
       ": expected the model that the step was made from for several ranks, "
       "with the options of the step, because a file has no sums over ranks");
}

StepGraph StartFileStep(const StepSource& source, StepKind kind,
                        const std::map<std::string, Shape>& shapes,
                        const InputValues& values, Spending* spending) {
  const FileStep& file = *source.step;
  bool apply = kind == StepKind::kApply;
  const Graph& from = apply ? *file.apply : *source.model;
  const StepNotes& notes = apply ? file.apply_notes : file.notes;
  StepGraph step;
  step.kind = kind;
  step.graph = Specialize(from, shapes, *source.evaluator, &step.specialized,
                          values, spending);
  Graph& graph = *step.graph;
  step.lr = notes.Value("lr");
  step.counted = NumberOf(graph, notes, "counted", DType::kFloat);
  step.grad_norm = NumberOf(graph, notes, "grad_norm", DType::kFloat);
  step.ok = NumberOf(graph, notes, "ok", DType::kBool);
  step.loss_scale = NumberOf(graph, notes, "loss_scale", DType::kFloat);
  step.update_amax = NumberOf(graph, notes, "update_amax", DType::kFloat);
  step.loss = NumberOf(graph, notes, "loss", DType::kFloat);
  step.amax = notes.Value("amax");
  if (!step.amax.empty()) {
    const Value* amax = graph.Find(step.amax);
    auto labels = static_cast<int64_t>(notes.amax_labels.size());
    Check(amax->dtype == DType::kFloat && NumElements(*amax->shape) == labels,
          "[", graph.file, "] expected ", labels,
          " floats as the step's amax, ", step.amax, ", got another value");
    step.fp8.labels = notes.amax_labels;
  }
  if (!apply) AddSlots(from, &step);
  std::set<std::string> reported;
  for (const char* purpose : kReported) reported.insert(notes.Value(purpose));
  if (!OwnOutput(source.loss.kind)) reported.insert(step.loss);
  for (const Value* value : graph.outputs) {
    if (!reported.contains(value->name)) step.outputs.push_back(value->name);
  }
  if (!apply && step.loss.empty() && !source.loss.kind.empty()) {
    Value* loss = AddLoss(graph, source.loss);
    step.loss = loss->name;
    bool listed = std::ranges::count(graph.outputs, loss) > 0;
    if (!listed) graph.outputs.push_back(loss);
  }
  const Value* label = graph.Find(source.loss.label);
  step.counts_labels = label && MayCountNone(source.loss, label->dtype);
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kSum) step.sums.push_back(value->name);
  }
  step.gradient_names.seed = notes.Value("seed");
  auto released = notes.settings.find("release_gradients");
  step.gradient_names.released =
      released != notes.settings.end() && released->second == "true";
  for (auto [parameter, gradient] : GradientPairs(graph)) {
    step.trained.push_back(parameter->name);
    step.gradient_names.parameters.insert(gradient->name);
  }
  return step;
}

void KeepReport(StepGraph* step) {
  Graph& graph = *step->graph;
  std::erase_if(graph.outputs, [&](const Value* value) {
    return value->name != step->loss &&
           std::ranges::count(step->outputs, value->name) > 0;
  });
  step->outputs.clear();
}

namespace {

// The amaxes of a whole step, each with its label.
struct Amaxes {
  const Value* values = nullptr;  // null: nothing is quantized
  std::vector<std::string> labels;
};

// Keeps the model's outputs and the loss; returns the amaxes, which then are no
// output any more.
Amaxes DropReports(StepGraph* step) {
  Graph& graph = *step->graph;
  Amaxes amaxes = {step->amax.empty() ? nullptr : graph.Find(step->amax),
                   std::exchange(step->fp8.labels, {})};
  graph.state.clear();
  std::erase_if(graph.outputs, [&](const Value* value) {
    return value->name != step->loss &&
           std::ranges::count(step->outputs, value->name) == 0;
  });
  for (std::string* report :
       {&step->counted, &step->grad_norm, &step->ok, &step->amax,
        &step->loss_scale, &step->update_amax, &step->lr}) {
    report->clear();
  }
  return amaxes;
}

// The nodes on which the outputs depend.
std::unordered_set<const Node*> NodesBehindOutputs(const Graph& graph) {
  std::unordered_set<const Node*> live;
  std::vector<const Value*> open(graph.outputs.begin(), graph.outputs.end());
  while (!open.empty()) {
    const Node* node = open.back() ? open.back()->producer : nullptr;
    open.pop_back();
    if (!node || !live.insert(node).second) continue;
    open.insert(open.end(), node->inputs().begin(), node->inputs().end());
  }
  return live;
}

// The node whose amax the row holds; null if it is a constant. An amax may be
// chosen by a flag (DropIdleAmaxes).
const Node* QuantizerOf(const Value* row) {
  while (const Node* node = row->producer) {
    if (FactsOf(*node).kind == OpKind::kQuantize) return node;
    if (node->inputs().empty()) return nullptr;
    bool chosen = FactsOf(*node).kind == OpKind::kChoice;
    row = node->in(chosen ? (node->in(1)->producer ? 1 : 2) : 0);
  }
  return nullptr;
}

// Reports the amaxes of the quantizers that the outputs need.
void KeepAmaxes(const Amaxes& all, StepGraph* step) {
  Graph& graph = *step->graph;
  const Node* join = all.values ? BehindCopies(all.values)->producer : nullptr;
  bool has_rows =
      join && join->Is("Concat") && join->inputs().size() == all.labels.size();
  if (!has_rows) return;
  auto live = NodesBehindOutputs(graph);
  std::vector<Value*> rows;
  for (size_t i = 0; i < all.labels.size(); ++i) {
    const Node* quantizer = QuantizerOf(join->in(i));
    if (!quantizer || !live.contains(quantizer)) continue;
    rows.push_back(join->in(i));
    step->fp8.labels.push_back(all.labels[i]);
  }
  if (rows.empty()) return;
  Builder b(graph, "fp8.");
  Value* kept = b.Op("Concat", rows, {{"axis", int64_t{0}}});
  graph.outputs.push_back(kept);
  step->amax = kept->name;
}

}  // namespace

void KeepForward(StepGraph* step) { KeepAmaxes(DropReports(step), step); }

void KeepGradients(const FileStep& file, StepGraph* step) {
  Graph& graph = *step->graph;
  auto pairs = GradientPairs(graph);
  Check(file.kind != Written::kForeignStep && !pairs.empty(), "[", graph.file,
        "] expected a training step whose gradients are known, got one of "
        "another program");
  Value* loss_scale = nullptr;
  for (Value* value : graph.Initializers()) {
    bool scales = value->role == Role::kLossScale && IsFloat(value->dtype);
    if (scales) loss_scale = value;
  }
  Value* factor = loss_scale;
  if (Value* counted = graph.Find(step->counted)) {
    Builder b(graph, "micro.");
    factor = factor ? b.Mul(factor, counted) : counted;
  }
  Amaxes amaxes = DropReports(step);
  AddGradientOutputs(pairs, factor, step);
  KeepAmaxes(amaxes, step);
}

void DropIdleState(Graph& graph) {
  std::unordered_set<const Value*> outputs(graph.outputs.begin(),
                                           graph.outputs.end());
  for (Value* value : graph.Initializers()) {
    bool idle = IsState(value->role) || value->is_input;
    if (!idle || outputs.contains(value) || !value->uses.empty()) continue;
    std::erase(graph.inputs, value);
    graph.RemoveValue(value);
  }
}

}  // namespace onnx_fp8
