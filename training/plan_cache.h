// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "graph/passes/specialise.h"
#include "providers/executor.h"
#include "training/step_graph.h"
#include "training/step_report.h"

namespace onnx_fp8 {

// What a plan is made for.
struct PlanKey {
  StepKind kind;
  bool input_gradients = false;
  std::map<std::string, Shape> shapes = {};  // of the inputs
  InputValues values = {};  // of the inputs whose values decided something
  MicroSums sums = {};      // of kApply

  // Whether a plan for this serves `wanted`, which may name more values.
  bool Fits(const PlanKey& wanted) const;
};

// A planned graph and the names to talk to it.
struct PlannedStep {
  PlanKey key;
  StepGraph step;
  std::shared_ptr<const ReportLayout> report;
  std::unique_ptr<Executor> executor;
  // Of a micro step: quantizes the weights, and what it gave in this step.
  std::unique_ptr<Executor> quantiser;
  TensorMap weight_copies;
};

// The plans of a session, most recently used first.
class PlanCache {
 public:
  explicit PlanCache(int64_t most) : most_(most) {}

  // Null if there is none. It is the most recently used one then.
  PlannedStep* Find(const PlanKey& wanted);
  // Drops the plan that was not used for the longest time if there are more
  // than `most`.
  PlannedStep& Keep(PlannedStep planned);
  void Clear() { plans_.clear(); }

  const std::list<PlannedStep>& plans() const { return plans_; }
  void ForgetWeightCopies();

 private:
  int64_t most_;
  std::list<PlannedStep> plans_;
};

}  // namespace onnx_fp8
