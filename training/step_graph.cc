// SPDX-License-Identifier: Apache-2.0
#include "training/step_graph.h"

#include <algorithm>
#include <limits>

#include "graph/builder.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/fold_transpose.h"
#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_bias_gradient.h"
#include "graph/passes/fuse_loss.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/fuse_rotary.h"
#include "graph/passes/inference_mode.h"
#include "graph/passes/linear.h"
#include "graph/passes/running_statistics.h"
#include "graph/passes/scale_update.h"
#include "graph/passes/unroll_recurrent.h"
#include "graph/verify.h"
#include "graph/written_file.h"
#include "onnx_fp8/check.h"
#include "optimizers/optimizer.h"
#include "training/autodiff.h"
#include "training/loss.h"

namespace onnx_fp8 {
namespace {

using Pairs = std::vector<std::pair<Value*, Value*>>;

constexpr char kAccumulated[] = "micro.grad.";
constexpr char kAmaxState[] = "micro.amax";

class StepBuilder {
 public:
  StepBuilder(const StepSource& source, StepKind kind)
      : source_(source), kind_(kind), spending_(source.budgets) {}

  StepGraph Forward(const std::map<std::string, Shape>& shapes,
                    bool input_gradients, const InputValues& values) {
    if (kind_ != StepKind::kEval) RequireNoForward(*source_.model);
    step_.graph = Specialise(*source_.model, shapes, *source_.evaluator,
                             &step_.specialised, values, &spending_);
    Graph& graph = *step_.graph;
    for (const Value* value : graph.outputs) {
      step_.outputs.push_back(value->name);
    }
    if (kind_ == StepKind::kEval) InferenceMode(graph);
    if (kind_ == StepKind::kGradients) DropNothing(graph);
    RemoveIdleDropout(graph);
    if (kind_ != StepKind::kEval) UnrollRecurrent(graph, &spending_);
    NormaliseLinear(graph);
    FuseRotary(graph);
    FuseAttention(graph);
    FuseActivations(graph);
    FuseNorms(graph);
    if (!source_.loss.kind.empty()) {
      loss_ = AddLoss(graph, source_.loss);
      step_.loss = loss_->name;
      FuseLoss(graph);
      loss_ = graph.Find(step_.loss);
    }
    if (kind_ == StepKind::kEval) {
      Quantise(nullptr, {});
      if (loss_) AddOutput(loss_);
    } else {
      Backward(input_gradients);
    }
    bool trains = kind_ == StepKind::kTrain || kind_ == StepKind::kMicro;
    if (trains && !source_.model_outputs) DropModelOutputs();
    return Finish();
  }

  StepGraph Apply(const MicroSums& micro) {
    step_.graph = std::make_shared<Graph>();
    Graph& graph = *step_.graph;
    graph.file = source_.model->file;
    graph.opset = source_.model->opset;
    Builder b(graph, "apply.");
    std::vector<ParameterGradient> parameters;
    std::vector<Value*> sums;
    for (const Value* original : source_.model->Initializers()) {
      const std::string& name = original->name;
      if (!micro.trained.contains(name)) continue;
      Value* param = graph.AddInitializer(name, original->data);
      param->role = Role::kParameter;
      sums.push_back(AddSum(kAccumulated + name, param->dtype, *param->shape));
      Value* share =
          b.Scalar(1.0 / static_cast<double>(source_.grad_accum), param);
      parameters.push_back({param, b.Mul(sums.back(), share), Fqn(name)});
    }
    if (micro.amaxes) {
      step_.fp8.slots = *source_.slots;
      auto n = static_cast<int64_t>(step_.fp8.slots.size());
      amax_ = AddSum(kAmaxState, DType::kFloat, {n + 1});
      sums.push_back(amax_);
    }
    if (!step_.fp8.slots.empty() && !PerMicroBatch()) {
      AddScaleState(graph, source_.fp8.recipe, &step_.fp8);
    }
    Optimise(parameters);
    for (Value* sum : sums) {
      Value* zero =
          graph.AddInitializer(graph.FreshName(sum->name + ".zero"),
                               Tensor::Zeros(sum->dtype, *sum->shape));
      graph.state.push_back({sum, zero});
    }
    return Finish();
  }

 private:
  void Backward(bool input_gradients) {
    Graph& graph = *step_.graph;
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
    BackwardResult backward = BuildBackward(graph, loss_, wanted, &spending_);
    Pairs pairs;
    for (Value* value : wanted) {
      auto it = backward.gradient.find(value);
      if (it != backward.gradient.end()) pairs.push_back({value, it->second});
    }
    // These replace nodes, never values: the pairs stay good.
    FuseBiasGradients(graph);
    Quantise(backward.seed, pairs);
    DropIdleAmaxes(graph, Roots(pairs), &step_.fp8);
    step_.gradient_names.seed = backward.seed->name;
    if (kind_ == StepKind::kGradients) {
      NameGradients(pairs);
    } else if (kind_ == StepKind::kMicro) {
      Accumulate(pairs);
      BindRunningStatistics(graph, LossIsFinite());
    } else {
      std::vector<ParameterGradient> parameters;
      for (auto [param, grad] : pairs) {
        parameters.push_back({param, grad, Fqn(param->name)});
      }
      amax_ = AmaxVector(graph, step_.fp8);
      BindRunningStatistics(graph, Optimise(parameters));
    }
    for (auto [param, grad] : pairs) step_.trained.push_back(param->name);
    AddOutput(loss_);
  }

  void Quantise(Value* seed, const Pairs& pairs) {
    step_.fp8 = Fp8Rewrite(*step_.graph, source_.fp8, seed, pairs,
                           source_.slots ? &*source_.slots : nullptr);
    CheckPatterns(step_.fp8.decisions, source_.fp8, step_.graph->file,
                  LeftOut());
    // The rewrite notes on FP8 products what they are; for the profile all do.
    for (const GemmDecision& d : step_.fp8.decisions) {
      if (d.fp8 || d.gemm.role == GemmRole::kNone) continue;
      d.gemm.node->metadata["role"] = Name(d.gemm.role);
      d.gemm.node->metadata["fqn"] = d.fqn;
    }
  }

  void NameGradients(const Pairs& pairs) {
    Graph& graph = *step_.graph;
    for (auto [value, gradient] : pairs) {
      // One value may be the gradient of two; each gets an output of its own.
      Node* node = graph.AddNode("Identity", {gradient},
                                 {graph.FreshName("grad." + value->name)});
      Value* named = node->out(0);
      named->dtype = gradient->dtype;
      named->shape = gradient->shape;
      graph.outputs.push_back(named);
      auto& names = value->is_input ? step_.input_gradients : step_.gradients;
      names[named->name] = value->name;
    }
  }

  // What a step is for.
  std::vector<const Value*> Roots(const Pairs& pairs) const {
    std::vector<const Value*> roots(step_.graph->outputs.begin(),
                                    step_.graph->outputs.end());
    roots.push_back(loss_);
    for (auto [param, gradient] : pairs) roots.push_back(gradient);
    return roots;
  }

  void Accumulate(const Pairs& pairs) {
    Graph& graph = *step_.graph;
    Builder b(graph, "micro.");
    for (auto [param, grad] : pairs) {
      Value* sum =
          AddSum(kAccumulated + param->name, param->dtype, *param->shape);
      graph.state.push_back({sum, b.Add(sum, grad)});
    }
    amax_ = AmaxVector(graph, step_.fp8);
    if (!amax_) return;
    OutputAmaxes();
    Value* kept = KeptAmaxes(graph, step_.fp8);
    Value* state = AddSum(kAmaxState, DType::kFloat, *kept->shape);
    graph.state.push_back({state, b.Op("Max", {state, kept})});
    if (PerMicroBatch()) {
      AttachScaleUpdate(graph, source_.fp8.recipe, step_.fp8, kept,
                        LossIsFinite());
    }
  }

  // Whether micro steps move the delayed scales.
  bool PerMicroBatch() const {
    return kind_ != StepKind::kTrain && source_.fp8.recipe.per_micro_batch;
  }

  // A micro step does not know yet whether the whole step will be skipped.
  Value* LossIsFinite() {
    Builder b(*step_.graph, "micro.");
    Value* infinity = b.Scalar(std::numeric_limits<float>::infinity(), loss_);
    return b.Op("Less", {b.Op("Abs", {loss_}), infinity});
  }

  const std::string& Fqn(const std::string& parameter) const {
    auto known = source_.fp8.names.find(parameter);
    return known == source_.fp8.names.end() ? parameter : known->second.fqn;
  }

  // Parameters of the model that this graph has no use for.
  std::vector<std::string> LeftOut() const {
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

  // What the model's trained parameters go by, whatever this graph has of them.
  std::set<std::string> TrainedNames() const {
    std::set<std::string> names;
    for (const Value* value : source_.model->Initializers()) {
      if (value->role != Role::kParameter) continue;
      names.insert({value->name, Fqn(value->name)});
    }
    return names;
  }

  // Optimizer, then the update of delayed scales, which need its `ok`. Returns
  // that.
  Value* Optimise(const std::vector<ParameterGradient>& parameters) {
    Graph& graph = *step_.graph;
    std::vector<Value*> finite;
    if (amax_) finite.push_back(amax_);
    CheckGroups(source_.optimizer, TrainedNames(), graph.file);
    OptimizerValues made =
        AppendOptimizer(graph, parameters, source_.optimizer, finite);
    if (step_.fp8.scale) {
      AttachScaleUpdate(graph, source_.fp8.recipe, step_.fp8, amax_, made.ok);
    }
    AddOutput(made.grad_norm);
    AddOutput(made.ok);
    step_.grad_norm = made.grad_norm->name;
    step_.ok = made.ok->name;
    step_.lr = made.lr->name;
    if (amax_ && kind_ == StepKind::kTrain) OutputAmaxes();
    return made.ok;
  }

  void OutputAmaxes() {
    Builder b(*step_.graph, "fp8.");
    Value* seen = b.Op("Identity", {amax_});
    AddOutput(seen);
    step_.amax = seen->name;
  }

  // All graphs of a session know a sum by one name, whatever else they hold:
  // one that the model does not use.
  Value* AddSum(const std::string& hint, DType dtype, const Shape& shape) {
    std::string name = hint;
    for (int i = 1; source_.model->Find(name); ++i) name = Concat(hint, "_", i);
    Value* value =
        step_.graph->AddInitializer(name, Tensor::Zeros(dtype, shape));
    value->role = Role::kState;
    step_.sums.push_back(value->name);
    return value;
  }

  void DropModelOutputs() {
    std::erase_if(step_.graph->outputs, [&](const Value* value) {
      return value != loss_ && std::ranges::find(step_.outputs, value->name) !=
                                   step_.outputs.end();
    });
    step_.outputs.clear();
  }

  void AddOutput(Value* value) {
    auto& outputs = step_.graph->outputs;
    if (std::ranges::find(outputs, value) == outputs.end()) {
      outputs.push_back(value);
    }
  }

  // Of updates and of sums over micro-batches it is the second operand.
  void NameParameterGradients() {
    std::set<std::string>& names = step_.gradient_names.parameters;
    for (const StateBinding& binding : step_.graph->state) {
      const std::string& state = binding.state->name;
      bool is_sum = state.starts_with(kAccumulated) &&
                    std::ranges::find(step_.sums, state) != step_.sums.end();
      if (is_sum) names.insert(state);
      const Node* update = binding.next->producer;
      bool reads_gradient = is_sum || binding.state->role == Role::kParameter;
      if (update && reads_gradient) names.insert(update->in(1)->name);
    }
  }

  StepGraph Finish() {
    Graph& graph = *step_.graph;
    graph.Sort();
    FoldTranspose(graph);
    RemoveDeadCode(graph);
    Verify(graph, "BuildStepGraph");
    NameParameterGradients();
    return std::move(step_);
  }

  const StepSource& source_;
  StepKind kind_;
  Spending spending_;
  StepGraph step_;
  Value* loss_ = nullptr;
  Value* amax_ = nullptr;
};

}  // namespace

StepGraph BuildStepGraph(const StepSource& source, StepKind kind,
                         const std::map<std::string, Shape>& shapes,
                         bool input_gradients, const InputValues& values) {
  return StepBuilder(source, kind).Forward(shapes, input_gradients, values);
}

void MicroSums::Add(const StepGraph& micro) {
  trained.insert(micro.trained.begin(), micro.trained.end());
  amaxes |= !micro.fp8.labels.empty();
}

StepGraph BuildApplyGraph(const StepSource& source, const MicroSums& sums) {
  return StepBuilder(source, StepKind::kApply).Apply(sums);
}

}  // namespace onnx_fp8
