// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_builder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "base/check.h"
#include "base/moment_codes.h"
#include "graph/builder.h"
#include "graph/fp8/dump_products.h"
#include "graph/fp8/frozen_codes.h"
#include "graph/fp8/measure_casts.h"
#include "graph/fp8/scale_update.h"
#include "graph/onnx/written_file.h"
#include "graph/op_facts.h"
#include "graph/passes/fuse_loss.h"
#include "graph/passes/recompute.h"
#include "graph/passes/running_statistics.h"
#include "graph/passes/unroll_recurrent.h"
#include "onnx_fp8/option_error.h"
#include "optimizers/master_format.h"
#include "training/ranks/over_ranks.h"
#include "training/ranks/shard_parameters.h"
#include "training/ranks/sharded_state.h"
#include "training/ranks/share_amaxes.h"
#include "training/step/autodiff.h"
#include "training/step/data_parallel.h"
#include "training/step/loss.h"
#include "training/step/step_report.h"
#include "training/step/store_masters.h"

namespace onnx_fp8 {
namespace {

constexpr char kAccumulated[] = "micro.grad.";
constexpr char kAmaxState[] = "micro.amax";
// The number of micro-batches whose loss is a number.
constexpr char kNumbersState[] = "micro.losses";
// The number or the weight of labels over which losses are means.
constexpr char kLabelsState[] = "micro.labels";

// x of any rank that has parts of the parameters: the largest.
Value* LargestOfParts(Graph& graph, Value* x,
                      const std::vector<ParameterGradient>& parameters,
                      const Mesh& mesh) {
  std::set<std::string> axes;
  for (const ParameterGradient& p : parameters) {
    axes.insert(p.divided_by.begin(), p.divided_by.end());
  }
  Builder b(graph, "optimizer.");
  b.set_part(Part::kOptimizer);
  return MaxOver(b, x, mesh, {axes.begin(), axes.end()});
}

}  // namespace

void MicroSums::Add(const StepGraph& micro) {
  trained.insert(micro.trained.begin(), micro.trained.end());
  amaxes |= !micro.fp8.labels.empty();
  ++batches;
}

StepBuilder::StepBuilder(const StepSource& source, const StepLayout& layout,
                         StepKind kind, const std::optional<LabelType>& label)
    : source_(source),
      layout_(layout),
      label_(label),
      spending_(source.budgets) {
  step_.kind = kind;
}

void StepBuilder::Start(const std::map<std::string, Shape>& shapes,
                        const InputValues& values) {
  if (step_.kind != StepKind::kEval) RequireNoForward(*source_.model);
  step_.graph = Specialize(*source_.model, shapes, *source_.evaluator,
                           &step_.specialized, values, &spending_);
  step_.graph->state.clear();  // of a forward pass in FP8
  for (const Value* value : step_.graph->outputs) {
    step_.outputs.push_back(value->name);
  }
}

void StepBuilder::StartApply(const MicroSums& micro) {
  step_.graph = std::make_shared<Graph>();
  Graph& graph = *step_.graph;
  graph.file = source_.model->file;
  graph.opset = source_.model->opset;
  Builder b(graph, "apply.");
  Value* inverse = nullptr;
  if (source_.sums_labels) {
    numbers_ = AddSum(kLabelsState, DType::kFloat, {});
    inverse = InverseOfLabels(b);
  }
  for (const Value* original : source_.model->Initializers()) {
    const std::string& name = original->name;
    if (!micro.trained.contains(name)) continue;
    const bool sharded = IsSharded(name);
    Tensor data = original->data;
    if (const AxisSplit* split = SplitOf(name)) {
      data = Tensor::Zeros(data.dtype(),
                           PartOf(data.shape(), *split, source_.mesh.tp));
    }
    const Shape whole = data.shape();
    if (sharded) {
      data = Tensor::Zeros(data.dtype(),
                           ShardOf(data.shape(), 0, source_.mesh.dp).part);
    }
    Value* param = graph.AddInitializer(name, data);
    param->role = Role::kParameter;
    sums_.push_back(
        AddGradientSum(*param, SumsAreWhole() ? whole : data.shape()));
    Value* sum = sums_.back();
    if (!sharded) {
      sum = OfAllRanks(b, sum);
    } else if (SumsAreWhole()) {
      sum = ReduceToShard(graph, sum, source_.mesh);
    }
    Value* share =
        inverse ? b.Cast(inverse, param->dtype)
                : b.Scalar(1.0 / static_cast<double>(micro.batches), param);
    shares_.push_back(GradientOf(param, b.Mul(sum, share)));
  }
  if (!numbers_) numbers_ = AddSum(kNumbersState, DType::kFloat, {});
  sums_.push_back(numbers_);
  AddLossScale();
  if (micro.amaxes) {
    step_.fp8.slots = *layout_.slots;
    auto n = static_cast<int64_t>(step_.fp8.slots.size());
    amax_ = AddSum(kAmaxState, DType::kFloat, {n + 1});
    sums_.push_back(amax_);
  }
  if (!step_.fp8.slots.empty() && !PerMicroBatch()) {
    AddScaleState(graph, source_.fp8.recipe, &step_.fp8);
  }
}

// Without a label that counts, the sums are 0 and the factor is 1.
Value* StepBuilder::InverseOfLabels(Builder& b) const {
  Value* none = b.Op("Equal", {numbers_, b.Scalar(0, numbers_)});
  return b.Op("Reciprocal", {b.Add(numbers_, b.Cast(none, numbers_->dtype))});
}

void StepBuilder::Unroll(Graph& graph) { UnrollRecurrent(graph, &spending_); }

void StepBuilder::Loss(Graph& graph) {
  LossSpec loss = source_.loss;
  if (layout_.class_axis) loss.class_axis = layout_.class_axis;
  step_.loss_spec = ResolveLoss(graph, loss, label_);
  loss_ = AddLoss(graph, step_.loss_spec, label_);
  step_.loss = loss_->name;
  const Value* label = graph.Find(loss.label);
  step_.counts_labels = label && MayCountNone(loss, label->dtype);
}

void StepBuilder::MergeLoss(Graph& graph) {
  FuseLoss(graph);
  loss_ = graph.Find(step_.loss);
}

void StepBuilder::DivideLayers(Graph& graph) {
  SplitLayersReport report =
      SplitLayers(graph, source_.mesh, source_.tensor_rank);
  parts_.insert(report.slices.begin(), report.slices.end());
  for (const auto& [name, split] : report.initializers) parts_.insert(name);
  step_.layers = std::move(report.layers);
  step_.divides_tokens = report.divides_tokens;
  step_.whole_tokens = std::move(report.whole_tokens);
  step_.splits = std::move(report.initializers);
  if (!layout_.splits) return;
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kNone) continue;
    auto it = step_.splits.find(value->name);
    const AxisSplit* now = it == step_.splits.end() ? nullptr : &it->second;
    const AxisSplit* before = SplitOf(value->name);
    Check(now && before ? *now == *before : now == before, "[", graph.file,
          "] expected the ranks of the axis tp to divide ", value->name,
          " as in the first step: batches of these sizes need it ",
          now ? "divided" : "whole");
  }
}

void StepBuilder::ShareLoss(Graph& graph) {
  CheckSamplesAreApart(graph);
  const LossOfRanks shared =
      LossOverRanks(graph, loss_, step_.loss_spec, source_.mesh);
  loss_ = shared.loss;
  step_.loss = loss_->name;
  if (SumsLabels()) counted_ = shared.counted;
}

Value* StepBuilder::Target() {
  if (!SumsLabels()) return loss_;
  Graph& graph = *step_.graph;
  Builder b(graph, "micro.");
  if (!counted_) {
    const LossSpec& spec = step_.loss_spec;
    counted_ = CountedLabels(b, spec, graph.Find(spec.label));
  }
  counted_ = b.Cast(counted_, DType::kFloat);
  step_.counted = counted_->name;
  AddOutput(counted_);
  return b.Mul(loss_, b.Cast(counted_, loss_->dtype));
}

void StepBuilder::Differentiate(Graph& graph, bool input_gradients) {
  Check(loss_ != nullptr, "[", graph.file,
        "] expected a loss to train with, got none");
  std::vector<Value*> wanted;
  for (Value* value : graph.Initializers()) {
    if (value->role == Role::kParameter) wanted.push_back(value);
  }
  if (input_gradients) {
    for (Value* value : graph.inputs) {
      if (IsFloat(value->dtype)) wanted.push_back(value);
    }
  }
  AddLossScale();
  BackwardResult backward =
      BuildBackward(graph, Target(), wanted, *source_.evaluator, &spending_,
                    loss_scale_.scale);
  for (Value* value : wanted) {
    auto it = backward.gradient.find(value);
    if (it == backward.gradient.end()) continue;
    pairs_.push_back({value, it->second});
    step_.trained.push_back(value->name);
  }
  seed_ = backward.seed;
  step_.gradient_names.seed = seed_->name;
  step_.gradient_names.released = source_.optimizer.release_gradients;
}

void StepBuilder::Quantize(Graph& graph) {
  Fp8Spec spec = source_.fp8;
  if (layout_.scales) spec.scales = *layout_.scales;
  step_.fp8 = Fp8Rewrite(graph, spec, seed_, pairs_,
                         layout_.slots ? &*layout_.slots : nullptr);
  CheckPatterns(step_.fp8.decisions, spec, graph.file, LeftOut());
  if (source_.measured && TrainsOnSamples(step_.kind)) {
    // For its errors.
    MeasuredNodes(graph, *source_.measured, source_.frozen == "fp8");
  }
  if (TrainsOnSamples(step_.kind)) {
    CheckDumped(source_.dump, step_.fp8.decisions, graph.file);
  }
  // The rewrite marks FP8 products with their role; the profile wants it on
  // all.
  for (const GemmDecision& d : step_.fp8.decisions) {
    if (d.fp8 || d.gemm.role == GemmRole::kNone) continue;
    d.gemm.node->metadata["role"] = Name(d.gemm.role);
    d.gemm.node->metadata["fqn"] = d.fqn;
    if (source_.extras.dumps) NameOperands(d.gemm);
  }
}

void StepBuilder::DropAmaxes(Graph& graph) {
  DropIdleAmaxes(graph, Roots(), &step_.fp8);
}

// Several ranks may have the same whole tensor. It then counts several times,
// which changes no share and no ratio.
void StepBuilder::Measure(Graph& graph) {
  CastMeasures measures =
      MeasureCasts(graph, *source_.measured, source_.frozen == "fp8");
  Builder b(graph, "stats.");
  Value* numbers = b.Reshape(
      measures.numbers, {std::ssize(measures.casts), CastStatistics::kNumbers});
  const Axes all = {kDataRanks, kReplicaRanks, kTensorRanks};
  // The sums come first, then the amax, the least number and the scale.
  constexpr int64_t kAmax = CastStatistics::kSums;
  const auto columns = [&](int64_t begin, int64_t end) {
    return b.Op("Slice",
                {numbers, b.Ints({begin}), b.Ints({end}), b.Ints({1})});
  };
  Value* sums = SumOver(b, columns(0, kAmax), source_.mesh, all);
  Value* amax = MaxOver(b, columns(kAmax, kAmax + 1), source_.mesh, all);
  Value* less = b.Neg(columns(kAmax + 1, kAmax + 2));
  Value* least = b.Neg(MaxOver(b, less, source_.mesh, all));
  Value* scale = MaxOver(b, columns(kAmax + 2, kAmax + 3), source_.mesh, all);
  numbers = b.Op("Concat", {sums, amax, least, scale}, {{"axis", int64_t{1}}});
  std::erase(graph.outputs, measures.numbers);
  AddOutput(numbers);
  step_.cast_numbers = numbers->name;
  step_.casts = std::move(measures.casts);
}

// Gradients wait for the update, unless they are released or become parts.
void StepBuilder::Recompute(Graph&) {
  std::unordered_set<const Value*> kept;
  const bool wait = step_.kind == StepKind::kTrain &&
                    !source_.optimizer.release_gradients &&
                    source_.shard.what <= Sharding::kOptimizer;
  for (auto [param, gradient] : pairs_) {
    if (wait) kept.insert(gradient);
  }
  RecomputeInStep(source_, kept, &step_);
}

void StepBuilder::Shard(Graph& graph) {
  const bool whole_gradients = step_.kind == StepKind::kMicro && SumsAreWhole();
  ShardParameters(graph, {source_.shard, source_.mesh, &source_.sharded, seed_},
                  &pairs_, whole_gradients);
}

void StepBuilder::ScalesOfWholes(Graph& graph) {
  ShareAmaxes(graph, source_.mesh, parts_, layout_.new_scales);
}

// The state of float16's loss scale, in all graphs with gradients.
void StepBuilder::AddLossScale() {
  if (source_.dtype != DType::kFloat16) return;
  auto add = [&](const char* hint, Tensor initial) {
    Value* state = step_.graph->AddInitializer(StateName(hint), initial);
    state->role = Role::kLossScale;
    return state;
  };
  auto init = static_cast<float>(source_.loss_scaling.init);
  loss_scale_.scale = add("loss_scale", Tensor::Scalar(init));
  if (step_.kind == StepKind::kTrain || step_.kind == StepKind::kApply) {
    loss_scale_.good_steps =
        add("loss_scale.growth", Tensor::Scalar(int64_t{0}));
  }
}

void StepBuilder::OutputGradients(Graph&) {
  AddGradientOutputs(pairs_, loss_scale_.scale, &step_);
}

void StepBuilder::Accumulate(Graph& graph) {
  Builder b(graph, "micro.");
  for (auto [param, grad] : pairs_) {
    Value* sum = AddGradientSum(*param, *grad->shape);
    graph.state.push_back({sum, b.Add(sum, grad)});
  }
  Value* numbers =
      AddSum(counted_ ? kLabelsState : kNumbersState, DType::kFloat, {});
  Value* more = counted_ ? counted_ : b.Cast(LossIsNumber(), DType::kFloat);
  graph.state.push_back({numbers, b.Add(numbers, more)});
  amax_ = AmaxVector(graph, step_.fp8);
  if (!amax_) return;
  OutputAmaxes();
  Value* kept = AmaxOfAllRanks(KeptAmaxes(graph, step_.fp8));
  Value* state = AddSum(kAmaxState, DType::kFloat, *kept->shape);
  graph.state.push_back({state, b.Op("Max", {state, kept})});
  if (PerMicroBatch()) {
    AttachScaleUpdate(graph, source_.fp8.recipe, step_.fp8, kept,
                      LossIsFinite());
  }
}

void StepBuilder::Update(Graph& graph) {
  std::vector<ParameterGradient> parameters;
  for (auto [param, grad] : pairs_) {
    Builder b(graph, Concat("ranks.", param->name, "."));
    parameters.push_back(
        GradientOf(param, IsSharded(param->name) ? grad : OfAllRanks(b, grad)));
  }
  amax_ = AmaxOfAllRanks(AmaxVector(graph, step_.fp8));
  const bool early = source_.optimizer.release_gradients;
  Optimize(parameters, early ? LossIsFinite() : LossIsNumber());
}

void StepBuilder::UpdateFromSums(Graph& graph) {
  Builder b(graph, "micro.");
  Optimize(shares_, b.Op("Greater", {numbers_, b.Scalar(0, numbers_)}));
  for (Value* sum : sums_) {
    Value* zero = graph.AddInitializer(graph.FreshName(sum->name + ".zero"),
                                       Tensor::Zeros(sum->dtype, *sum->shape));
    graph.state.push_back({sum, zero});
  }
}

void StepBuilder::Statistics(Graph& graph) {
  BindRunningStatistics(graph, ok_ ? ok_ : LossIsFinite());
}

void StepBuilder::Outputs(Graph& graph) {
  if (loss_) AddOutput(loss_);
  const bool trains = TrainsOnSamples(step_.kind);
  if (!trains) {
    // All ranks that divide a layer measure the same samples.
    amax_ = AmaxVector(graph, step_.fp8);
    if (amax_) {
      Builder b(graph, "ranks.");
      amax_ = MaxOver(b, amax_, source_.mesh, {kTensorRanks});
      OutputAmaxes();
    }
  }
  if (!trains || source_.model_outputs) return;
  std::erase_if(graph.outputs, [&](const Value* value) {
    return value != loss_ &&
           std::ranges::find(step_.outputs, value->name) != step_.outputs.end();
  });
  step_.outputs.clear();
}

void StepBuilder::ReadAverages(Graph& graph) {
  for (const auto& [weight, average] : source_.averages) {
    if (Value* value = graph.Find(weight)) graph.Rename(value, average);
  }
}

void StepBuilder::StoreMasters(Graph& graph) {
  std::vector<Value*> weights;
  int64_t others = 0;
  for (Value* value : graph.Initializers()) {
    if (value->role != Role::kParameter) continue;
    if (source_.masters.contains(value->name)) {
      weights.push_back(value);
    } else {
      ++others;
    }
  }
  MasterStorage storage = {
      .correction = CorrectionOf(source_.optimizer),
      .state_name = [this](const std::string& hint) { return StateName(hint); },
      .places = [this](const std::string& weight) { return PlacesIn(weight); },
      .seed = graph.Find(StateName("optimizer.seed"))};
  const Value* step = graph.Find(StateName("optimizer.step"));
  for (const StateBinding& binding : graph.state) {
    if (binding.state == step) storage.number = binding.next;
  }
  onnx_fp8::StoreMasters(graph, weights, storage);
  const bool updates =
      step_.kind == StepKind::kTrain || step_.kind == StepKind::kApply;
  if (!updates) return;
  const auto bits = 8 * ByteSize(storage.correction);
  step_.masters =
      Concat("`master` ", source_.optimizer.master, ": ", weights.size(),
             " weights are bfloat16s",
             bits > 0 ? Concat(" with a correction of ", bits, " bits")
                      : std::string(),
             ", ", others, " keep their type");
}

void StepBuilder::StoreFrozen(Graph& graph) {
  std::vector<Value*> halves;
  for (Value* value : graph.Initializers()) {
    if (source_.frozen_halves.contains(value->name)) halves.push_back(value);
  }
  onnx_fp8::StoreMasters(graph, halves, {});
  if (source_.frozen == "fp8") {
    step_.frozen = KeepFrozenCodes(
        graph, [this](const std::string& hint) { return StateName(hint); });
  }
  step_.frozen_weights = FrozenRemark();
}

void StepBuilder::Dump(Graph& graph) {
  step_.dumped = DumpProducts(graph, source_.dump);
}

StepGraph StepBuilder::Take() {
  NameParameterGradients();
  return std::move(step_);
}

// The results that a step is run for.
std::vector<const Value*> StepBuilder::Roots() const {
  std::vector<const Value*> roots(step_.graph->outputs.begin(),
                                  step_.graph->outputs.end());
  roots.push_back(loss_);
  for (auto [param, gradient] : pairs_) roots.push_back(gradient);
  return roots;
}

// Whether micro steps move the delayed scales.
bool StepBuilder::PerMicroBatch() const {
  return step_.kind != StepKind::kTrain && source_.fp8.recipe.per_micro_batch;
}

// A micro step does not know yet whether the whole step will be skipped. With
// released gradients the updates wait for this value, so it is a node of the
// optimizer and RunUpdatesEarly moves it.
Value* StepBuilder::LossIsFinite() {
  Builder b(*step_.graph, "micro.");
  b.set_part(Part::kOptimizer);
  Value* infinity = b.Scalar(std::numeric_limits<float>::infinity(), loss_);
  return b.Op("Less", {b.Op("Abs", {loss_}), infinity});
}

// The loss of a batch without a label that counts is not a number, and its
// gradients are 0.
Value* StepBuilder::LossIsNumber() {
  Builder b(*step_.graph, "loss.");
  return b.Op("Not", {b.Op("IsNaN", {loss_})});
}

const std::string& StepBuilder::Fqn(const std::string& parameter) const {
  auto known = source_.fp8.names.find(parameter);
  return known == source_.fp8.names.end() ? parameter : known->second.fqn;
}

// Parameters of the model that this graph does not use.
std::vector<std::string> StepBuilder::LeftOut() const {
  std::vector<std::string> names;
  for (const Value* value : source_.model->Initializers()) {
    bool weight =
        value->role == Role::kParameter || value->role == Role::kFrozen;
    if (!weight) continue;
    const Value* here = step_.graph->Find(value->name);
    if (!here || here->uses.empty()) names.push_back(value->name);
  }
  return names;
}

// The optimizer, then the update of delayed scales, which needs its `ok`.
void StepBuilder::Optimize(const std::vector<ParameterGradient>& parameters,
                           Value* condition) {
  Graph& graph = *step_.graph;
  std::vector<Value*> finite;
  Value* amax = source_.optimizer.release_gradients ? AmaxOfForward() : amax_;
  if (amax) finite.push_back(amax);
  OptimizerValues made = AppendOptimizer(
      graph, parameters, source_.optimizer, finite, loss_scale_.scale,
      [this](Builder& b, Value* x, const Axes& axes) {
        return SumOver(b, x, source_.mesh, axes);
      },
      [this](const std::string& hint) { return StateName(hint); }, condition,
      source_.seed);
  step_.moments = MomentsRemark(parameters);
  step_.averages = AveragesRemark();
  if (loss_scale_.scale) {
    UpdateLossScale(graph, loss_scale_, source_.loss_scaling, made.finite);
    Value* used =
        Builder(graph, "loss_scale.").Op("Identity", {loss_scale_.scale});
    AddOutput(used);
    step_.loss_scale = used->name;
  }
  if (step_.fp8.scale) {
    AttachScaleUpdate(graph, source_.fp8.recipe, step_.fp8, amax_, made.ok);
  }
  AddOutput(made.grad_norm);
  AddOutput(made.ok);
  step_.grad_norm = made.grad_norm->name;
  step_.ok = made.ok->name;
  step_.lr = made.lr->name;
  if (made.update_amax) {
    Value* largest =
        LargestOfParts(graph, made.update_amax, parameters, source_.mesh);
    AddOutput(largest);
    step_.update_amax = largest->name;
  }
  if (amax_ && step_.kind == StepKind::kTrain) OutputAmaxes();
  ok_ = made.ok;
}

// The largest amax of the forward; null if nothing is quantized there. Copies
// that the backward makes of values of the forward do not count: their amaxes
// are known too late.
Value* StepBuilder::AmaxOfForward() {
  Graph& graph = *step_.graph;
  const StepHalves halves(graph, seed_);
  std::unordered_set<const Value*> early;
  for (const Node* node : halves.forward) {
    early.insert(node->outputs().begin(), node->outputs().end());
  }
  // A choice of an amax by the flag of a branch stands at the end.
  for (const Node& node : graph.nodes()) {
    const bool known = std::ranges::all_of(node.inputs(), [&](const Value* v) {
      return !v || early.contains(v) || (v->is_constant() && v != seed_);
    });
    if (known && FactsOf(node).kind != OpKind::kQuantize) {
      early.insert(node.outputs().begin(), node.outputs().end());
    }
  }
  std::vector<Value*> amaxes;
  auto add = [&](Value* amax) {
    if (amax && early.contains(amax)) amaxes.push_back(amax);
  };
  for (const ScaleSlot& slot : step_.fp8.slots) add(slot.amax);
  for (Value* amax : step_.fp8.amaxes) add(amax);
  if (amaxes.empty()) return nullptr;
  Builder b(graph, "optimizer.");
  b.set_part(Part::kOptimizer);
  return MaxOver(b, b.Op("Max", amaxes), source_.mesh,
                 {kDataRanks, kReplicaRanks, kTensorRanks});
}

void StepBuilder::OutputAmaxes() {
  Builder b(*step_.graph, "fp8.");
  Value* seen = b.Op("Identity", {amax_});
  AddOutput(seen);
  step_.amax = seen->name;
}

Value* StepBuilder::OfAllRanks(Builder& b, Value* x) const {
  return SumOver(b, x, source_.mesh, kSampleAxes);
}

const AxisSplit* StepBuilder::SplitOf(const std::string& parameter) const {
  const auto& splits = layout_.splits ? *layout_.splits : step_.splits;
  auto it = splits.find(parameter);
  return it == splits.end() ? nullptr : &it->second;
}

Axes StepBuilder::DividedBy(const std::string& parameter) const {
  Axes axes;
  if (IsSharded(parameter)) axes.push_back(kDataRanks);
  if (SplitOf(parameter)) axes.push_back(kTensorRanks);
  return axes;
}

ElementPlaces StepBuilder::PlacesIn(const std::string& parameter) const {
  const Shape& whole = *source_.model->Find(parameter)->shape;
  const AxisSplit* split = SplitOf(parameter);
  const Shape part = split ? PartOf(whole, *split, source_.mesh.tp) : whole;
  onnx_fp8::Shard shard{.whole = whole, .part = part};
  if (IsSharded(parameter)) {
    shard = ShardOf(part, source_.shard_rank, source_.mesh.dp);
    shard.whole = whole;
  }
  if (split) shard.tensor_part = {*split, source_.tensor_rank, source_.mesh.tp};
  return PlacesOf(shard);
}

ParameterGradient StepBuilder::GradientOf(Value* param, Value* grad) const {
  const std::string& name = param->name;
  const Shape& whole = *source_.model->Find(name)->shape;
  const AxisSplit* split = SplitOf(name);
  const auto use = source_.uses.find(name);
  ParameterGradient made = {
      .param = param,
      .grad = grad,
      .fqn = Fqn(name),
      .divided_by = DividedBy(name),
      .places = PlacesIn(name),
      .whole = whole,
      .cuts_blocks = split && CutsMomentBlocks(whole, *split, source_.mesh.tp),
      .use = use == source_.uses.end() ? WeightUse::kLayer : use->second};
  auto known = source_.fp8.names.find(name);
  made.transposed =
      known != source_.fp8.names.end() && known->second.transposed;
  made.of_rest = source_.of_rest.contains(name);
  const bool joins = !RestOf(source_.optimizer).empty() && !made.of_rest;
  if (joins && IsSharded(name)) JoinForUpdate(&made);
  return made;
}

void StepBuilder::JoinForUpdate(ParameterGradient* parameter) const {
  const Mesh& mesh = source_.mesh;
  parameter->to_whole = [&mesh, shape = parameter->whole](Builder& b,
                                                          Value* x) {
    return JoinParts(b, x, shape, mesh);
  };
  parameter->to_part = [&mesh, rank = source_.shard_rank](Builder& b,
                                                          Value* x) {
    return PartOfRank(b, x, rank, mesh);
  };
}

std::string StepBuilder::MomentsRemark(
    const std::vector<ParameterGradient>& parameters) const {
  if (source_.optimizer.moments != "fp8") return "";
  int64_t codes = 0, others = 0, cut = 0;
  size_t bytes = 0, cut_bytes = 0;
  for (const ParameterGradient& p : parameters) {
    for (const char* moment : kMoments) {
      const Value* state =
          step_.graph->Find(StateName(p.param->name + "." + moment));
      if (!state || state->role != Role::kMoment) continue;
      const bool coded = IsFloat8(state->dtype);
      const bool is_cut = p.cuts_blocks && MayKeepCodes(p.whole);
      codes += coded;
      others += !coded;
      bytes += coded ? 0 : BytesOf(*state);
      cut += is_cut;
      cut_bytes += is_cut ? BytesOf(*state) : 0;
    }
  }
  if (codes + others == 0) return "";
  std::string text = Concat("`moments` fp8: ", codes, " are codes, ", others,
                            " are floats (", bytes, " bytes)");
  if (cut > 0) {
    text += Concat(", ", cut, " of these (", cut_bytes,
                   " bytes) because ranks of the axis tp cut blocks of ",
                   kMomentBlock, " elements");
  }
  return text;
}

std::string StepBuilder::AveragesRemark() const {
  const OptimizerSpec& spec = source_.optimizer;
  if (spec.ema == 0) return "";
  int64_t averages = 0;
  size_t bytes = 0;
  for (const Value* value : step_.graph->Initializers()) {
    if (value->role != Role::kAverage) continue;
    ++averages;
    bytes += BytesOf(*value);
  }
  return Concat("`ema=", spec.ema, "`: averages of weights: ", averages, " (",
                bytes, " bytes), moved by ",
                spec.ema_every == 1
                    ? std::string("each update")
                    : Concat("1 of ", spec.ema_every, " updates"));
}

// How many frozen weights live in each way, and their bytes.
std::string StepBuilder::FrozenRemark() const {
  std::map<std::string, int64_t> sets;  // of codes, by weight
  size_t bytes = 0;
  for (const FrozenCodes& made : step_.frozen) {
    for (const std::string& weight : made.weights) ++sets[weight];
    for (const std::string& copy : made.copies) {
      bytes += BytesOf(*step_.graph->Find(copy));
    }
  }
  const auto twice =
      std::ranges::count_if(sets, [](const auto& s) { return s.second > 1; });
  int64_t halves = 0, others = 0;
  size_t bytes_of_halves = 0, bytes_of_others = 0;
  for (const Value* value : step_.graph->Initializers()) {
    if (value->role != Role::kFrozen) continue;
    const bool half = value->dtype == DType::kBFloat16;
    ++(half ? halves : others);
    (half ? bytes_of_halves : bytes_of_others) += BytesOf(*value);
  }
  if (sets.empty() && halves == 0 && others == 0) {
    return Concat("`frozen` ", source_.frozen,
                  ": the step reads no frozen weight");
  }
  std::string text =
      Concat("`frozen` ", source_.frozen, ": frozen weights as ");
  if (source_.frozen == "fp8") {
    text += Concat("FP8 codes and scales: ", sets.size(), " (", bytes, " bytes",
                   twice > 0 ? Concat("; ", twice,
                                      " twice, because the backward reads "
                                      "other codes")
                             : std::string(),
                   "), as ");
  }
  return text + Concat("bfloat16, rounded to the nearest: ", halves, " (",
                       bytes_of_halves, " bytes), as in the model: ", others,
                       " (", bytes_of_others, " bytes)");
}

// An amax of infinity says on all ranks that a tensor of one is not finite.
Value* StepBuilder::AmaxOfAllRanks(Value* amax) const {
  if (!amax) return nullptr;
  Builder b(*step_.graph, "ranks.");
  return MaxOver(b, amax, source_.mesh,
                 {kDataRanks, kReplicaRanks, kTensorRanks});
}

std::string StepBuilder::StateName(const std::string& hint) const {
  return onnx_fp8::StateName(*source_.model, hint);
}

Value* StepBuilder::AddSum(const std::string& hint, DType dtype,
                           const Shape& shape) {
  Value* value =
      step_.graph->AddInitializer(StateName(hint), Tensor::Zeros(dtype, shape));
  value->role = Role::kSum;
  step_.sums.push_back(value->name);
  return value;
}

Value* StepBuilder::AddGradientSum(const Value& param, const Shape& shape) {
  Value* sum = AddSum(kAccumulated + param.name, param.dtype, shape);
  gradient_sums_.insert(sum);
  return sum;
}

void StepBuilder::AddOutput(Value* value) {
  auto& outputs = step_.graph->outputs;
  if (std::ranges::find(outputs, value) == outputs.end()) {
    outputs.push_back(value);
  }
}

// Gradients are the values that updates read, the sums over micro-batches, and
// the values added to these sums.
void StepBuilder::NameParameterGradients() {
  std::set<std::string>& names = step_.gradient_names.parameters;
  for (const StateBinding& binding : step_.graph->state) {
    const Node* node = binding.next->producer;
    if (!gradient_sums_.contains(binding.state)) continue;
    names.insert(binding.state->name);
    if (!node) continue;  // the sum starts anew
    for (const Value* in : node->inputs()) names.insert(in->name);
  }
  for (const Node& node : step_.graph->nodes()) {
    const int gradient =
        node.metadata.contains(kGradientOf) ? 0 : FactsOf(node).gradient;
    if (gradient < 0) continue;
    names.insert(node.in(static_cast<size_t>(gradient))->name);
  }
}

void RecomputeInStep(const StepSource& source,
                     const std::unordered_set<const Value*>& kept,
                     StepGraph* step) {
  Graph& graph = *step->graph;
  const Value* seed = graph.Find(step->gradient_names.seed);
  if (!seed) {
    throw OptionError(
        Concat("`recompute`: expected a step that `rewrite()` wrote, got ",
               graph.file, ", which does not say where its backward begins"));
  }
  graph.Sort();
  StepHalves halves(graph, seed);
  const bool copies = step->kind != StepKind::kMicro;
  const bool codes = !source.primary_weights;
  RecomputeChoice choice =
      source.choose_recomputed
          ? source.choose_recomputed(
                {&graph,
                 halves.forward,
                 NodesThatMayRunAgain(halves.forward, copies, codes),
                 kept,
                 {}})
          : ChooseRecomputed({source.recompute, copies, codes}, graph,
                             halves.forward);
  RecomputeInBackward(graph, choice.nodes, &halves.backward);
  step->recomputed = std::move(choice.text);
}

}  // namespace onnx_fp8
