// SPDX-License-Identifier: Apache-2.0
#include "training/step/training_model.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/check.h"
#include "base/hash.h"
#include "base/joined.h"
#include "graph/passes/straight_through.h"
#include "graph/passes/token_places.h"
#include "onnx_fp8/dump_spec.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/stats_spec.h"
#include "training/make_provider.h"
#include "training/ranks/sharded_state.h"
#include "training/state/frozen_weights.h"
#include "training/state/masters.h"
#include "training/step/adapters.h"
#include "training/step/decay_note.h"
#include "training/step/given_weights.h"
#include "training/step/gradient_registry.h"
#include "training/step/hidden_matrices.h"
#include "training/step/loss.h"
#include "training/step/pipelines.h"
#include "training/step/read_init.h"
#include "training/step/session_checks.h"
#include "training/step/static_scales.h"
#include "training/step/torch_weights.h"
#include "training/step/trains_line.h"

namespace onnx_fp8 {

namespace {

// The rows of the weight in which elements of the value are looked up; the
// fewest, if there are several. None: it is no index.
std::optional<int64_t> RowsLookedUp(const Value& value) {
  std::optional<int64_t> fewest;
  auto take = [&](std::optional<int64_t> rows) {
    if (rows) fewest = std::min(*rows, fewest.value_or(*rows));
  };
  for (const Node* use : value.uses) {
    if (use->Is("Cast") && IsInteger(use->out(0)->dtype)) {
      take(RowsLookedUp(*use->out(0)));
    } else if (use->Is("Gather") && use->in(1) == &value &&
               use->Int("axis", 0) == 0 && ComesFromWeight(use->in(0)) &&
               use->in(0)->shape && !use->in(0)->shape->empty()) {
      take(use->in(0)->shape->front());
    }
  }
  return fewest;
}

}  // namespace

std::vector<InputInfo> TrainingModel::Inputs() const {
  std::vector<InputInfo> infos;
  for (const Value* value : graph->inputs) {
    infos.push_back({value->name, value->dtype, value->shape.value_or(Shape{}),
                     value->axis_names, IsLabelOfFile(*value),
                     RowsLookedUp(*value)});
  }
  return infos;
}

std::vector<ParameterInfo> TrainingModel::Parameters() const {
  std::vector<ParameterInfo> infos;
  for (const Value* value : graph->Initializers()) {
    bool trained = value->role == Role::kParameter;
    if (!trained && value->role != Role::kFrozen) continue;
    infos.push_back({value->name, names.at(value->name).fqn,
                     DTypeOfWeight(*value), *value->shape, trained});
  }
  return infos;
}

TensorSource TrainingModel::TakeFirst(const Value* value) {
  auto given = first.extract(value->name);
  return given ? std::move(given.mapped()) : TensorSource(value->data);
}

bool TrainingModel::IsLabelOfFile(const Value& input) const {
  return loss_file && std::ranges::count(loss_file->labels, input.name) > 0;
}

std::string TrainingModel::Fingerprint() const {
  std::string text;
  auto add = [&](const char* kind, const Value* value) {
    text += Concat(kind, " ", value->name, " ", Name(value->dtype), " ",
                   value->shape ? ToString(*value->shape) : "?", "\n");
  };
  for (const Value* value : graph->inputs) {
    const bool added = value->name == added_segments;
    if (!added && !IsLabelOfFile(*value)) add("input", value);
  }
  for (const Value* value : graph->outputs) {
    bool added = loss_file && value->name == loss_file->output;
    if (!added) add("output", value);
  }
  for (const Value* value : graph->Initializers()) {
    if (value->role == Role::kParameter) add("parameter", value);
    if (value->role == Role::kFrozen) add("frozen", value);
  }
  return Concat(std::hex, Hash(text));
}

SourceMap TrainingModel::WithCopies(SourceMap weights) const {
  for (const TiedCopy& copy : copies) {
    auto first = weights.find(copy.first);
    if (first == weights.end()) continue;  // constants
    TensorSource own = first->second;
    weights.insert_or_assign(copy.name,
                             copy.transposed ? Transposed(own) : own);
  }
  return weights;
}

ParameterNames TrainingModel::AllNames() const {
  ParameterNames all = names;
  for (const TiedCopy& copy : copies) {
    bool known = copy.torch.fqn != copy.name || !IsMadeUpName(copy.name);
    if (known) all[copy.name] = copy.torch;
  }
  return all;
}

namespace {

// The name of the output that the loss reads: the output that `loss` names, or
// else the first one. If the model computes its loss: the output named there.
std::string LogitsOf(const LossSpec& loss, const Graph& graph,
                     const std::string& model) {
  std::optional<std::string> own = OwnOutput(loss.kind);
  std::string wanted = own.value_or(loss.logits);
  std::vector<std::string> names;
  for (const Value* value : graph.outputs) names.push_back(value->name);
  Check(!names.empty(), "[", model,
        "] expected a model with outputs, got none");
  if (wanted.empty()) return names[0];
  Check(std::ranges::count(names, wanted) > 0, "[", model,
        "] expected an output named ", wanted, ", got ", Joined(names));
  return own ? loss.logits : wanted;
}

const char* RoleWord(Role role) {
  if (role == Role::kNone) return "constant";
  return role == Role::kParameter ? "parameter" : Name(role);
}

// The outputs that the loss reads.
std::vector<std::string> Targets(const LossSpec& loss) {
  return {OwnOutput(loss.kind).value_or(loss.logits)};
}

// What training does with each tensor, and the line that sums it up.
void DescribeTensors(const SessionOptions& options,
                     const std::vector<InitializerReport>& tensors,
                     TrainingModel* model) {
  std::set<std::string> unused;
  if (!model->loss.kind.empty()) {
    unused = UnusedParameters(*model->graph, Targets(model->loss));
  }
  for (const InitializerReport& tensor : tensors) {
    const Value& value = *tensor.value;
    bool tied = !tensor.tied_to.empty();
    bool idle = !tied && unused.contains(value.name);
    Check(!idle || tensor.evidence != Evidence::kFlag, "[", options.model,
          "] `train` names ", tensor.name,
          ", on which the loss does not depend: no gradient reaches it");
    std::string role = tied ? "tied" : idle ? "unused" : RoleWord(value.role);
    auto named = model->names.find(tensor.name);
    model->tensors.push_back(
        {tensor.name,
         named == model->names.end() ? tensor.torch.fqn : named->second.fqn,
         tensor.data.dtype(), tensor.data.shape(),
         role == "parameter" || (tied && value.role == Role::kParameter), role,
         idle ? "unused: the loss does not depend on it" : tensor.reason});
  }
  model->trains = TrainsLine(tensors, unused);
}

// Loss, names and copies of a training step in a file.
void DescribeStep(SessionOptions* options, TrainingModel* model) {
  model->step = OpenFileStep(*model->graph, options);
  model->loss = options->loss;
  model->names = model->step->notes.names;
  model->trains = TrainsLineOfStep(*model->graph);
  for (const Value* value : model->graph->Initializers()) {
    auto named = model->names.find(value->name);
    bool trained = value->role == Role::kParameter;
    model->tensors.push_back(
        {value->name,
         named == model->names.end() ? value->name : named->second.fqn,
         DTypeOfWeight(*value), *value->shape, trained, RoleWord(value->role),
         "by the notes of the step"});
  }
  for (const NotedCopy& copy : model->step->notes.copies) {
    const Value& first = *model->graph->Find(copy.first);
    Shape shape = *first.shape;
    if (copy.transposed) std::swap(shape[0], shape[1]);
    model->copies.push_back({copy.name, copy.torch, DTypeOfWeight(first), shape,
                             copy.first, copy.transposed});
  }
}

std::string LossNote(const std::string& path, const LossFile& loss) {
  return Concat(
      "the loss of ", path, " reads ", Joined(loss.reads), " of the model and ",
      loss.labels.empty() ? "no labels" : "the labels " + Joined(loss.labels));
}

void DescribeModel(const SessionOptions& options, const ImportReport& import,
                   TrainingModel* model) {
  model->loss = options.loss;
  model->loss_file = import.loss;
  model->added_segments = import.added_segments;
  if (import.loss) {
    model->loss.kind = "output:" + import.loss->output;
    model->notes.push_back(LossNote(options.loss.kind, *import.loss));
  } else if (!model->loss.kind.empty()) {
    model->loss.logits = LogitsOf(model->loss, *model->graph, options.model);
  }
  if (!import.batch_norm_note.empty()) {
    model->notes.push_back(import.batch_norm_note);
  }
  model->notes.insert(model->notes.end(), import.notes.begin(),
                      import.notes.end());
  for (const InitializerReport& report : import.initializers) {
    if (report.tied_to.empty()) continue;
    model->copies.push_back({report.name, report.torch, report.data.dtype(),
                             report.data.shape(), report.tied_to,
                             report.transposed});
    model->notes.push_back(Concat(report.name, " and ", report.tied_to,
                                  " hold the same numbers",
                                  report.transposed ? ", transposed," : "",
                                  " and are trained as one tensor "
                                  "(`no_tie` trains them apart)"));
  }
  model->names = NameParameters(*model->graph);
  DescribeTensors(options, import.initializers, model);
  const std::string decay =
      DecayNote(options.optimizer, *model->graph, model->names);
  if (!decay.empty()) model->notes.push_back(decay);
  if (options.eval_with == "ema") {
    model->notes.push_back(
        "`eval_with=ema`: evaluation reads the averages of weights, once an "
        "update has moved them; running statistics are not averaged");
  }
  const std::string taken =
      TakenNote(options.optimizer,
                TakenByOptimizer(options.optimizer, model->loss, *model->graph,
                                 model->names),
                model->names);
  if (!taken.empty()) model->notes.push_back(taken);
  std::vector<std::string> codes;
  for (const Value* value : model->graph->Initializers()) {
    bool read = std::ranges::any_of(value->uses, [&](const Node* node) {
      return node->Is("DequantizeLinear") && node->in(0) == value;
    });
    if (read) codes.push_back(value->name);
  }
  if (!codes.empty()) {
    model->notes.push_back(Concat(
        "codes behind a DequantizeLinear can't be trained: ", Joined(codes)));
  }
  for (const std::string& place : RoundedForGood(*model->graph)) {
    model->notes.push_back(
        Concat("no gradient passes ", place,
               ": its codes do not return to floats by a DequantizeLinear "
               "with the same scale"));
  }
  if (!options.scales.empty()) model->scales = ReadStaticScales(options.scales);
}

// The model of the file, with its own numbers, and the weights that are given
// beside it.
TrainingModel Import(SessionOptions* options, PassRunner& runner, ImportFor use,
                     GivenWeights* given) {
  TrainingModel model;
  ImportReport import;  // holds tensors of the file
  model.graph = ImportModel(*options, use, runner, &import);
  if (use == ImportFor::kSession && IsStep(import.written)) {
    DescribeStep(options, &model);
  } else {
    model.lora = import.lora;
    model.adapters = import.adapters;
    DescribeModel(*options, import, &model);
  }
  *given = std::move(import.given);
  given->missing = std::move(import.missing);
  return model;
}

TrainingModel Load(SessionOptions* options, PassRunner& runner, ImportFor use) {
  GivenWeights given;
  TrainingModel model = Import(options, runner, use, &given);
  if (!given.path.empty()) {
    ReadInit(std::move(given), &model);
  } else if (options->lacks_weights) {
    RequireState(given.missing, *model.graph);
  }
  if (model.lora && !model.lora->folder.empty()) ReadAdapters(&model);
  return model;
}

// Whether the gradient of a result may go on to the node's operands.
bool PassesGradient(const Node& node) {
  return Gradients().Find(node.domain, node.op) != NoGradient;
}

void RequireWholeLayers(const TrainingModel& model, const Mesh& mesh) {
  if (!model.lora || mesh.tp == 1) return;
  throw OptionError(
      Concat("`lora`: expected ranks that compute whole layers (tp=1), got tp=",
             mesh.tp, ": adapters beside parts of layers are not implemented"));
}

bool IsCode(const Value* value) {
  return !value->is_sequence && value->dtype != DType::kUndefined &&
         !IsFloat(value->dtype);
}

}  // namespace

TrainingModel LoadTrainingModel(const SessionOptions& options,
                                PassRunner& runner, ImportFor use) {
  SessionOptions unchanged = options;
  TrainingModel model = Load(&unchanged, runner, use);
  for (Value* value : model.graph->Initializers()) {
    value->data = model.TakeFirst(value).Pull();
  }
  return model;
}

TrainingModel LoadSessionModel(SessionOptions* options, PassRunner& runner) {
  return Load(options, runner,
              options->model_only ? ImportFor::kTraining : ImportFor::kSession);
}

StepSource MakeStepSource(const SessionOptions& options,
                          const TrainingModel& model,
                          const Evaluator& evaluator, PassRunner& runner,
                          const Mesh& mesh, int64_t tensor_rank,
                          int64_t shard_rank) {
  CheckSettings(options, model.step != nullptr);
  CheckMetrics(options, model.loss);
  if (!model.step) CheckAccumulation(options, model.loss);
  RequireWholeLayers(model, mesh);
  StepSource source{
      model.graph.get(),
      model.loss,
      options.optimizer,
      options.dtype,
      options.loss_scaling,
      {options.recipe, WithAdapters(options.filter, model.adapters),
       model.names, model.scales},
      LossChunkBytes(options.loss_chunk_bytes, options.provider),
      options.recompute,
      options.grad_accum,
      options.seed,
      &evaluator,
      false,
      options.budgets,
      &runner,
      mesh,
      tensor_rank,
      shard_rank,
      options.shard,
      {},
      options.bucket_bytes,
      model.step.get()};
  source.sums_labels = options.grad_accum_by == "tokens";
  source.primary_weights = options.primary_weights == "fp8";
  CheckFrozen(options, model.step != nullptr, mesh);
  source.frozen = options.frozen;
  source.segment_ids = options.segment_ids;
  if (!options.stats.empty())
    source.measured = ParseStats(options.stats).layers;
  source.dump = ParseDump(options.dump, options.at_steps, options.what);
  source.fp8.own_frozen_scales = source.frozen == "fp8";
  if (source.frozen == "bfloat16" ||
      (source.frozen == "fp8" && options.dtype == DType::kBFloat16)) {
    source.frozen_halves = FrozenMatrices(*model.graph);
  }
  if (mesh.dp > 1 && options.shard.what != Sharding::kNone) {
    source.sharded = ParametersToShard(*model.graph);
  }
  if (!model.step) {
    source.masters = WeightsToKeepAsHalves(*model.graph, options.optimizer);
    source.uses = UsesThatDecide(options.optimizer, *model.graph);
    RequireWholeMatrices(options.optimizer, mesh);
    CheckOptimizerFile(options, mesh);
    for (const auto& [name, as] : TakenByOptimizer(
             options.optimizer, model.loss, *model.graph, model.names)) {
      if (as != TakenAs::kMatrix) source.of_rest.insert(name);
    }
  }
  CheckPatterns(source);
  return source;
}

std::set<std::string> UnusedParameters(
    const Graph& graph, const std::vector<std::string>& outputs) {
  std::unordered_set<const Value*> reached;
  std::vector<const Value*> open;
  auto reach = [&](const Value* value) {
    if (value && reached.insert(value).second) open.push_back(value);
  };
  for (const std::string& name : outputs) reach(graph.Find(name));
  while (!open.empty()) {
    const Node* node = open.back()->producer;
    open.pop_back();
    if (!node || !PassesGradient(*node)) continue;
    // Weights may be behind the codes that a DequantizeLinear reads.
    bool codes =
        node->Is("DequantizeLinear") || (node->out(0) && IsCode(node->out(0)));
    for (const Value* in : node->inputs()) {
      if (in && (codes || !IsCode(in))) reach(in);
    }
    for (const Value* captured : graph.CapturedBy(*node)) reach(captured);
  }
  std::set<std::string> unused;
  for (const Value* value : graph.Initializers()) {
    bool trained = value->role == Role::kParameter;
    if (trained && !reached.contains(value)) unused.insert(value->name);
  }
  return unused;
}

}  // namespace onnx_fp8
