// SPDX-License-Identifier: Apache-2.0
//
// The passes of a training step that are not in graph/passes/. pipelines.cc
// says which of them run, and in which order.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "optimizers/loss_scale.h"
#include "optimizers/optimizer.h"
#include "training/ranks/over_ranks.h"
#include "training/step/loss_labels.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// Builds one StepGraph. Each function below is a pass or the source of a
// pipeline. REQUIRES: the caller follows the order of pipelines.cc.
class StepBuilder {
 public:
  // `source` and `layout` must outlive this. `label`: the type of the label
  // that is fed, if it is known.
  StepBuilder(const StepSource& source, const StepLayout& layout, StepKind kind,
              const std::optional<LabelType>& label = {});

  // --- sources
  // The model at these shapes, as Specialize's.
  void Start(const std::map<std::string, Shape>& shapes,
             const InputValues& values);
  // Starts from the parameters and the sums of micro steps.
  void StartApply(const MicroSums& micro);

  // --- passes
  void Unroll(Graph& graph);
  void Loss(Graph& graph);
  void MergeLoss(Graph& graph);  // FuseLoss may replace it
  void DivideLayers(Graph& graph);
  void ShareLoss(Graph& graph);  // with other ranks
  void Differentiate(Graph& graph, bool input_gradients);
  void Quantize(Graph& graph);
  void DropAmaxes(Graph& graph);
  // REQUIRES: source.measured.
  void Measure(Graph& graph);
  void Recompute(Graph& graph);
  void Shard(Graph& graph);
  void ScalesOfWholes(Graph& graph);  // of tensors in parts on the axis tp
  // One of the next four decides what happens to the gradients.
  void OutputGradients(Graph& graph);
  void Accumulate(Graph& graph);
  void Update(Graph& graph);
  void UpdateFromSums(Graph& graph);
  void Statistics(Graph& graph);
  void Outputs(Graph& graph);
  void ReadAverages(Graph& graph);  // in place of weights
  void StoreMasters(Graph& graph);  // the last ones
  void StoreFrozen(Graph& graph);
  void Dump(Graph& graph);

  Graph& graph() { return *step_.graph; }
  StepGraph Take();

 private:
  using Pairs = std::vector<std::pair<Value*, Value*>>;

  const std::string& Fqn(const std::string& parameter) const;
  std::vector<const Value*> Roots() const;
  std::vector<std::string> LeftOut() const;
  bool PerMicroBatch() const;
  bool SumsLabels() const {
    return source_.sums_labels && step_.kind == StepKind::kMicro;
  }
  // Of kApply: the factor from sums over labels to means.
  Value* InverseOfLabels(Builder& b) const;
  // What the backward starts from: the mean loss, or the sum over labels.
  Value* Target();
  Value* LossIsFinite();
  Value* LossIsNumber();
  void AddLossScale();
  std::string StateName(const std::string& hint) const;
  // `condition`: whether the step may be done at all.
  void Optimize(const std::vector<ParameterGradient>& parameters,
                Value* condition);
  Value* AmaxOfForward();
  void OutputAmaxes();
  // Over the ranks that share a batch; x itself for one rank.
  Value* OfAllRanks(Builder& b, Value* x) const;
  // Whether micro steps add up whole gradients, which kApply divides.
  bool SumsAreWhole() const {
    return source_.shard.what == Sharding::kOptimizer;
  }
  bool IsSharded(const std::string& parameter) const {
    return source_.sharded.contains(parameter);
  }
  // A parameter's part on the axis tp; null: it is whole.
  const AxisSplit* SplitOf(const std::string& parameter) const;
  // Axes whose ranks have the other parts of a parameter.
  Axes DividedBy(const std::string& parameter) const;
  // Places of this rank's elements in the whole parameter.
  ElementPlaces PlacesIn(const std::string& parameter) const;
  ParameterGradient GradientOf(Value* param, Value* grad) const;
  // Gives a part the ways to the whole tensor and back.
  void JoinForUpdate(ParameterGradient* parameter) const;
  // What is said of moments that are codes: which ones are none. "": nothing.
  std::string MomentsRemark(
      const std::vector<ParameterGradient>& parameters) const;
  // How many averages there are, and their bytes. "": none.
  std::string AveragesRemark() const;
  std::string FrozenRemark() const;
  Value* AmaxOfAllRanks(Value* amax) const;
  Value* AddSum(const std::string& hint, DType dtype, const Shape& shape);
  Value* AddGradientSum(const Value& param, const Shape& shape);
  void AddOutput(Value* value);
  void NameParameterGradients();

  const StepSource& source_;
  const StepLayout& layout_;
  const std::optional<LabelType> label_;
  Spending spending_;
  StepGraph step_;
  Value* loss_ = nullptr;
  // Of micro steps that add up sums over labels: labels that count, as a float.
  Value* counted_ = nullptr;
  LossScale loss_scale_;         // of float16
  Value* seed_ = nullptr;        // of the backward
  Pairs pairs_;                  // wanted values with their gradients
  std::set<std::string> parts_;  // of tensor ranks, at the start
  Value* amax_ = nullptr;
  Value* ok_ = nullptr;                    // whether state may move
  std::vector<ParameterGradient> shares_;  // of kApply: parameters that are
                                           // updated
  std::vector<Value*> sums_;               // of kApply
  // Of kApply: micro-batches with a loss; or labels that count.
  Value* numbers_ = nullptr;
  std::set<const Value*> gradient_sums_;
};

// The backward of a step computes again what the source chooses. Copies of
// weights that a micro step reads, and FP8 copies that live from step to step,
// are not made again. `kept`: values that will live to the end of the step.
// Errors: as ChooseRecomputed's; a step of another program, which does not say
// where its backward begins.
void RecomputeInStep(const StepSource& source,
                     const std::unordered_set<const Value*>& kept,
                     StepGraph* step);

}  // namespace onnx_fp8
