// SPDX-License-Identifier: Apache-2.0
//
// The graphs of a training run: from an imported forward model and shapes to
// the graph that is planned. pipelines.cc has the passes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/evaluator.h"
#include "graph/fp8/dump_products.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/fp8/frozen_codes.h"
#include "graph/graph.h"
#include "graph/passes/pass.h"
#include "graph/passes/recompute.h"
#include "graph/passes/recompute_auto.h"
#include "graph/passes/specialize.h"
#include "graph/weight_uses.h"
#include "onnx_fp8/cast_statistics.h"
#include "onnx_fp8/dump_spec.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/sharding.h"
#include "providers/report/memory_report.h"
#include "training/ranks/split_layers.h"
#include "training/step/loss_labels.h"

namespace onnx_fp8 {

struct FileStep;

// Chooses what the backward computes again. All but the costs is filled in.
using RecomputeChooser = std::function<RecomputeChoice(RecomputeProblem)>;

// How a step may run in another way, with the same bits but other time and
// memory.
struct ExecutionChoice {
  // Whether one kernel makes both codes of a weight, for the forward and for
  // the backward, if the provider has it (JoinOrientations).
  bool joins_weights = true;
  // Whether parameters are gathered ahead of the layers that read them
  // (GatherAhead).
  bool gathers_ahead = true;
  // Most bytes of a workspace for a gradient of attention, which comes in parts
  // then (BoundWorkspaces). 0: the provider's own limit.
  size_t attention_workspace = 0;

  bool operator==(const ExecutionChoice&) const = default;
};

// What a search chooses for a step.
struct StepChoice {
  RecomputeChooser recompute = {};  // empty: nothing runs again
  ExecutionChoice execution = {};
};

// What a step says of its products beside its results, which are the same
// without it.
struct StepExtras {
  bool measures = false;  // statistics of casts (`stats`)
  bool dumps = false;     // tensors (`dump`)

  bool operator==(const StepExtras&) const = default;
};

enum class StepKind {
  kTrain,      // forward, backward, optimizer: a whole step
  kMicro,      // forward, backward, gradients and amaxes added up in state
  kApply,      // optimizer on the sums of the micro steps
  kEval,       // forward and, if there is one, the loss
  kGradients,  // forward and backward without Dropout, gradients are outputs
};

// Whether graphs of this kind compute the gradients of a batch for an update.
inline bool TrainsOnSamples(StepKind kind) {
  return kind == StepKind::kTrain || kind == StepKind::kMicro;
}

// The specification of all graphs of a session.
struct StepSource {
  const Graph* model;  // imported, roles set
  LossSpec loss;
  OptimizerSpec optimizer;
  DType dtype = DType::kFloat;  // see Autocast
  LossScaling loss_scaling = {};
  Fp8Spec fp8;
  int64_t loss_chunk_bytes = 0;             // see ChunkLoss
  std::vector<std::string> recompute = {};  // see RecomputeSpec
  int64_t grad_accum = 1;
  uint64_t seed = 0;  // of stochastic rounding
  const Evaluator* evaluator;
  // Whether kTrain and kMicro graphs have the model's own outputs too. Each
  // output needs memory of its own.
  bool model_outputs = false;
  Budgets budgets = {};  // of each graph
  PassRunner* runner;    // runs the passes of all graphs
  // The ranks that train together, training/step/data_parallel.h.
  Mesh mesh = {};
  int64_t tensor_rank = 0;  // this rank's place on the axis tp
  int64_t shard_rank = 0;   // and on the axis dp
  // The state that the ranks of the axis dp divide, and the shapes of the
  // parameters among it; training/ranks/shard_parameters.h.
  ShardSpec shard = {};
  std::map<std::string, Shape> sharded = {};
  int64_t bucket_bytes = -1;  // see SessionOptions
  // Not null: `model` is a training step (training/step/step_from_file.h), and
  // its own graph is run.
  const FileStep* step = nullptr;
  bool gathers_ahead = true;  // as ExecutionChoice's
  // The weights that the graphs keep as bfloat16s (training/state/masters.h).
  std::set<std::string> masters = {};
  // Decides in place of `recompute`; empty: `recompute` decides, and "auto"
  // chooses nothing.
  RecomputeChooser choose_recomputed = {};
  // Whether the FP8 copies of weights live from one kTrain graph to the next
  // (graph/fp8/primary_weights.h).
  bool primary_weights = false;
  // Whether micro steps add up sums over labels, not means (SessionOptions::
  // grad_accum_by).
  bool sums_labels = false;
  // The trained parameters that the optimizer leaves to RestOf it.
  std::set<std::string> of_rest = {};
  // How frozen matrices live, as in the options, and the ones that are
  // bfloat16s where nothing else is said of them.
  std::string frozen = "float32";
  std::set<std::string> frozen_halves = {};
  // For kEval: weights → the state that is read in their place, their averages.
  std::map<std::string, std::string> averages = {};
  // Uses of the model's parameters, where weight decay depends on them.
  std::map<std::string, WeightUse> uses = {};
  std::string segment_ids = {};  // see SessionOptions
  // `stats` measures casts of these layers (MeasureCasts), in some steps.
  // nullopt: no step measures.
  std::optional<std::vector<std::string>> measured = {};
  DumpSpec dump = {};
  StepExtras extras = {};  // of this step
};

// What earlier graphs of a run, or its checkpoint, have laid out for later
// ones.
struct StepLayout {
  // Slots of the kept scales. Later graphs find their slots by key.
  std::optional<std::vector<ScaleSlot>> slots = {};
  // Whether kept scales may still be 0, as before the first step.
  bool new_scales = true;
  // A checkpoint's scales, which replace the source's static ones.
  std::optional<StaticScales> scales = {};
  // Parts of parameters on the axis tp; later graphs must divide the same.
  std::optional<std::map<std::string, AxisSplit>> splits = {};
  // The axis of the loss's classes, as an earlier batch showed it.
  std::optional<int64_t> class_axis = {};
};

struct StepGraph {
  StepKind kind = StepKind::kTrain;
  std::shared_ptr<Graph> graph;
  Fp8Plan fp8;
  std::vector<std::string> trained;  // parameters that have a gradient
  // Names of outputs; "" if the kind has no such output.
  std::string loss;
  // Whether the loss is not a number only if no label of the batch counts.
  bool counts_labels = false;
  // Float: the number or the weight of labels over which the loss is a mean, if
  // that is the loss's weight in the step.
  std::string counted;
  // The loss of the source, with the axis of its classes as the batch shows it:
  // later batches of a session may fit two axes.
  LossSpec loss_spec;
  std::string grad_norm;
  std::string ok;
  std::string amax;  // vector, one per label of fp8
  // The output with MeasureCasts' numbers, joined over all ranks, and the casts
  // that they belong to.
  std::string cast_numbers;
  std::vector<MeasuredCast> casts;
  std::vector<DumpedOutputs> dumped;  // outputs for `dump`
  std::string loss_scale;             // float, the one of this step
  std::string update_amax;            // as OptimizerValues', of all ranks
  std::string lr;                     // input
  std::vector<std::string> sums;      // state in which micro steps add up
  // Graph output → the initializer or graph input whose gradient it is.
  std::map<std::string, std::string> gradients;
  std::map<std::string, std::string> input_gradients;
  GradientNames gradient_names;  // in all kinds that train
  // Outputs of the model itself.
  std::vector<std::string> outputs;
  SpecializeReport specialized;
  std::string recomputed;  // what the backward computes again; "": nothing
  std::string moments;     // a remark about how moments are kept; "": nothing
  std::string masters;     // the same of weights
  std::string averages;    // the same of averages of weights
  // State that holds FP8 copies of weights, and a remark about it.
  std::vector<std::string> weight_copies;
  std::string primary_weights;
  // Codes of frozen weights, which are state, and a remark about frozen
  // weights.
  std::vector<FrozenCodes> frozen;
  std::string frozen_weights;
  // Bytes, by name, of other state, which only the graph that makes the first
  // FP8 copies reads.
  std::map<std::string, size_t> set_aside;
  std::vector<LayerSplit> layers;  // with several ranks on the axis tp
  bool divides_tokens = false;     // as SplitLayersReport's
  std::string whole_tokens;
  // Parts of initializers on that axis; constants, too.
  std::map<std::string, AxisSplit> splits;

  // What users should know of the graph. (The remark about primary weights
  // follows when the graph fits a provider.)
  std::vector<std::string> Remarks() const {
    std::vector<std::string> remarks = {recomputed, moments, masters, averages,
                                        frozen_weights};
    std::erase(remarks, "");
    return remarks;
  }
};

// Any kind but kApply. `shapes`: of every input of the model, all sizes known.
// `values`: as Specialize's; step.specialized lists the ones that it took.
// `label`: AddLoss's.
// Errors: as the passes'; a kind that a step in a file does not have.
StepGraph BuildStepGraph(const StepSource& source, StepKind kind,
                         const std::map<std::string, Shape>& shapes,
                         bool input_gradients = false,
                         const InputValues& values = {},
                         const std::optional<LabelType>& label = {},
                         const StepLayout& layout = {});

// The sums of the micro steps of one optimizer step. Micro-batches may differ
// in shape and so have different graphs: one may lack a branch and its
// parameters, another may have no product in FP8.
struct MicroSums {
  std::set<std::string> trained;  // parameters that have a sum
  bool amaxes = false;            // at least one graph has quantized something
  int64_t batches = 0;            // over which the update takes the mean

  void Add(const StepGraph& micro);
  bool operator==(const MicroSums&) const = default;
};

// The kApply graph for these sums. REQUIRES: layout.slots, if sums.amaxes.
StepGraph BuildApplyGraph(const StepSource& source, const MicroSums& sums,
                          const StepLayout& layout);

}  // namespace onnx_fp8
