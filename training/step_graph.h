// SPDX-License-Identifier: Apache-2.0
//
// The graphs of a training run: from an imported forward model and shapes to
// what a plan is made of. pipelines.cc has the passes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/pass.h"
#include "graph/passes/fp8_rewrite.h"
#include "graph/passes/specialise.h"
#include "onnx_fp8/session.h"
#include "providers/memory_report.h"

namespace onnx_fp8 {

enum class StepKind {
  kTrain,      // forward, backward, optimizer: a whole step
  kMicro,      // forward, backward, gradients and amaxes added up in state
  kApply,      // optimizer on what the micro steps added up
  kEval,       // forward and, if there is one, the loss
  kGradients,  // forward and backward without Dropout, gradients are outputs
};

// What to build a graph from; the same for all graphs of a session.
struct StepSource {
  const Graph* model;  // imported, roles set
  LossSpec loss;
  OptimizerSpec optimizer;
  Fp8Spec fp8;
  int64_t grad_accum = 1;
  const Evaluator* evaluator;
  // Slots of the kept scales once a training graph has laid them out. Later
  // graphs find their slots by key.
  std::optional<std::vector<ScaleSlot>> slots = {};
  // Whether kTrain and kMicro graphs have the model's own outputs too: each
  // needs memory of its own.
  bool model_outputs = false;
  Budgets budgets = {};  // of each graph
  PassRunner* runner;    // runs the passes of all graphs
};

struct StepGraph {
  std::shared_ptr<Graph> graph;
  Fp8Plan fp8;
  std::vector<std::string> trained;  // parameters that have a gradient
  // Names of outputs; "" where the kind has none.
  std::string loss;
  std::string grad_norm;
  std::string ok;
  std::string amax;               // vector, one per label of fp8
  std::string lr;                 // input
  std::vector<std::string> sums;  // state that micro steps add up
  // Graph output → initializer or graph input it is the gradient of.
  std::map<std::string, std::string> gradients;
  std::map<std::string, std::string> input_gradients;
  GradientNames gradient_names;  // in all kinds that train
  // Outputs of the model itself.
  std::vector<std::string> outputs;
  SpecialiseReport specialised;
};

// Any kind but kApply. `shapes`: every input of the model, all sizes known.
// `values`: as Specialise's; step.specialised says which of them it took.
// Errors: what any of the passes finds wrong with the model.
StepGraph BuildStepGraph(const StepSource& source, StepKind kind,
                         const std::map<std::string, Shape>& shapes,
                         bool input_gradients = false,
                         const InputValues& values = {});

// What the micro steps of one optimizer step have added up. Shapes differ
// between these, and with them the graphs: one may lack a branch with its
// parameters, another one may have no product in FP8.
struct MicroSums {
  std::set<std::string> trained;  // parameters that have a sum
  bool amaxes = false;            // any graph has quantised something

  void Add(const StepGraph& micro);
  bool operator==(const MicroSums&) const = default;
};

// The kApply graph for these sums. REQUIRES: source.slots, if sums.amaxes.
StepGraph BuildApplyGraph(const StepSource& source, const MicroSums& sums);

}  // namespace onnx_fp8
