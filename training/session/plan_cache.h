// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "graph/passes/specialize.h"
#include "providers/run/executor.h"
#include "providers/run/state_store.h"
#include "training/session/collective_order.h"
#include "training/step/fit_memory.h"
#include "training/step/step_graph.h"
#include "training/step/step_report.h"

namespace onnx_fp8 {

// Shapes of the feeds of the graph's inputs. Errors: [model] one is missing.
std::map<std::string, Shape> ShapesOf(const Graph& graph,
                                      const TensorMap& feeds,
                                      const std::string& model);

// The type of the label that the loss reads, if it is not one of the graph's
// inputs; none without a label.
std::optional<LabelType> LabelOf(const Graph& graph, const LossSpec& loss,
                                 const TensorMap& feeds);

// The properties for which a plan is made.
struct PlanKey {
  StepKind kind;
  bool input_gradients = false;
  std::map<std::string, Shape> shapes = {};  // shapes of the inputs
  InputValues values = {};                   // of inputs that decided something
  MicroSums sums = {};                       // of kApply
  StepExtras extras = {};                    // what the step says beside
  bool has_loss = true;  // false: kEval without the label of the session's loss
  std::optional<LabelType> label = {};               // that the loss reads
  std::map<std::string, std::string> averages = {};  // as StepSource's

  // Whether a plan for this key serves `wanted`, which may name more values.
  bool Fits(const PlanKey& wanted) const;
};

// Makes the copies of weights that steps read, always in the same memory. Steps
// whose copies are the same share one. Copies of a micro step are made once
// between two updates. Copies of a whole step are state, which the step itself
// replaces: they are made if the state has changed otherwise.
class Quantizer {
 public:
  // `graph`: as SplitWeightCopies makes it, or KeepWeightCodes its maker.
  // `executor`: runs it.
  Quantizer(std::shared_ptr<const Graph> graph,
            std::unique_ptr<Executor> executor);

  // The copies by name, apart from the ones that are state; makes them if they
  // are not there.
  const TensorMap& Copies(TensorMap& state);
  // The weights have changed.
  void Forget();

  bool has_copies() const { return made_; }
  const Graph& graph() const { return *graph_; }
  Executor& executor() const { return *executor_; }

 private:
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Executor> executor_;
  bool made_ = false;
  TensorMap copies_;  // views of the executor's outputs
};

// A planned graph, and the names of its inputs and outputs.
struct PlannedStep {
  PlanKey key;
  StepGraph step;
  std::shared_ptr<const ReportLayout> report;
  std::unique_ptr<Executor> executor;
  // Makes the copies that the step reads. Null: it reads none.
  std::shared_ptr<Quantizer> quantizer;
  std::optional<MemoryFit> fit = {};  // of a limit, in kinds that are searched

  // Behind the plan itself.
  Lacks lacks() const {
    return quantizer && !quantizer->has_copies() ? Lacks::kWeightCopies
                                                 : Lacks::kNothing;
  }
  // The feeds for which the graph has inputs.
  TensorMap Known(const TensorMap& feeds) const;
};

// The plans of a session, most recently used first. The fits of plans that were
// dropped stay.
class PlanCache {
 public:
  explicit PlanCache(int64_t most) : most_(most) {}

  // Returns null if there is none. A plan that is found becomes the most
  // recently used.
  PlannedStep* Find(const PlanKey& wanted);
  // Adds a plan. If there are then more than `most`, drops the one that has not
  // been used for the longest time.
  PlannedStep& Keep(PlannedStep planned);
  // REQUIRES: there is a plan.
  void DropOldest();
  void Clear();

  // The fit of a plan for the key that was dropped; nullopt: there is none.
  std::optional<MemoryFit> DroppedFit(const PlanKey& wanted) const;

  const std::list<PlannedStep>& plans() const { return plans_; }
  // The plan with the largest arena; null: none is kept.
  const PlannedStep* Largest() const;
  // The most that a plan would need if its values shared no memory.
  size_t naive_bytes() const;
  // The quantizer of a plan that computes the same copies; null: there is none.
  std::shared_ptr<Quantizer> FindQuantizer(const Graph& graph) const;
  void ForgetWeightCopies();
  // The copies of weights that the plan is fed. For a whole step, `state` then
  // has its copies, in their places, and no copies of other plans. REQUIRES:
  // the plan is kept.
  const TensorMap& CopiesFor(const PlannedStep& planned, StateStore& state);
  // Whether it is the name of state that follows from other state: a copy of
  // weights of any plan that was kept.
  bool IsCopy(const std::string& name) const { return names_.contains(name); }

 private:
  struct KeptFit {
    PlanKey key;
    MemoryFit fit;
  };

  int64_t most_;
  std::list<PlannedStep> plans_;
  std::list<KeptFit> dropped_;   // the last one first
  std::set<std::string> names_;  // of copies that are state
};

}  // namespace onnx_fp8
