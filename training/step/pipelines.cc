// SPDX-License-Identifier: Apache-2.0
#include "training/step/pipelines.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "base/random.h"
#include "graph/export_record.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/fp8/frozen_codes.h"
#include "graph/fp8/primary_weights.h"
#include "graph/fp8/weight_copies.h"
#include "graph/infer_shapes.h"
#include "graph/onnx/initialization.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/ort_training_model.h"
#include "graph/onnx/written_file.h"
#include "graph/op_facts.h"
#include "graph/passes/autocast.h"
#include "graph/passes/batch_norm_mode.h"
#include "graph/passes/chunk_loss.h"
#include "graph/passes/compute_in_float.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/early_updates.h"
#include "graph/passes/fold_transpose.h"
#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_bias_gradient.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/fuse_rotary.h"
#include "graph/passes/fused_roundings.h"
#include "graph/passes/inference_mode.h"
#include "graph/passes/keep_row_order.h"
#include "graph/passes/linear.h"
#include "graph/passes/mask_segments.h"
#include "graph/passes/separate_tensors.h"
#include "graph/passes/slice_before_product.h"
#include "graph/passes/specialize.h"
#include "graph/passes/straight_through.h"
#include "graph/passes/unroll_recurrent.h"
#include "onnx_fp8/option_error.h"
#include "optimizers/master_format.h"
#include "providers/passes/add_to_sums.h"
#include "providers/passes/bound_workspaces.h"
#include "providers/passes/check_products.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/fuse_column_sums.h"
#include "providers/passes/fuse_quantize.h"
#include "providers/passes/join_loss_gradient.h"
#include "providers/passes/join_masters.h"
#include "providers/passes/join_moments.h"
#include "providers/passes/join_orientations.h"
#include "providers/passes/join_weight_codes.h"
#include "providers/passes/k_major.h"
#include "providers/passes/mx_scales.h"
#include "providers/passes/pad_operands.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "training/make_provider.h"
#include "training/ranks/bucket_reductions.h"
#include "training/ranks/gather_ahead.h"
#include "training/ranks/sharded_state.h"
#include "training/step/adapters.h"
#include "training/step/draw_weights.h"
#include "training/step/loss.h"
#include "training/step/place_state.h"
#include "training/step/step_builder.h"
#include "training/step/step_from_file.h"

namespace onnx_fp8 {
namespace {

constexpr bool kMaySkip = true;

void Append(Passes* list, Passes more) {
  std::ranges::move(more, std::back_inserter(*list));
}

const char* Name(StepKind kind) {
  switch (kind) {
    case StepKind::kTrain:
      return "train";
    case StepKind::kMicro:
      return "micro";
    case StepKind::kApply:
      return "apply";
    case StepKind::kEval:
      return "eval";
    case StepKind::kGradients:
      return "gradients";
  }
  return "?";
}

std::string SegmentNote(const Graph& graph, const SessionOptions& options,
                        bool added) {
  std::vector<std::string> others;
  for (const Value* input : graph.inputs) {
    if (input->name != options.segment_ids) others.push_back(input->name);
  }
  return Concat(
      "`segment_ids`: attention keeps to the documents of a row that ",
      options.segment_ids, added ? ", an added input," : "",
      " tells apart; positions begin anew only if one of the inputs ",
      Joined(others), " gives them",
      options.provider == "cuda" ? "; our own kernels compute it, not cuDNN's"
                                 : "");
}

Passes ImportPasses(const SessionOptions& options, ImportReport* report) {
  Passes list = {
      {"ComputeInFloat", ComputeInFloat},
      {"SeparateTensors",
       [&options, report](Graph& graph) {
         // The record's author has taken tensors apart already.
         if (options.tie_copies && ReadExportRecord(graph).separate) return;
         std::ranges::move(SeparateTensors(graph, !options.tie_copies),
                           std::back_inserter(report->notes));
       }},
      {"SetBatchNormMode",
       [&options, report](Graph& graph) {
         report->batch_norm_note = SetBatchNormMode(graph, options.batch_norm);
       }},
      {"MarkParameters",
       [&options, report](Graph& graph) {
         report->initializers = MarkParameters(
             graph,
             {options.train, options.freeze, options.tie_copies, options.ties},
             &report->notes);
       }},
  };
  if (!options.segment_ids.empty()) {
    list.push_back({"AddSegmentInput", [&options, report](Graph& graph) {
                      bool added = AddSegmentInput(graph, options.segment_ids);
                      if (added) report->added_segments = options.segment_ids;
                      report->notes.push_back(
                          SegmentNote(graph, options, added));
                    }});
  }
  if (!options.lora.empty()) {
    report->lora = ResolveLora(options.lora);
    list.push_back({"AddAdapters", [report](Graph& graph) {
                      report->adapters = AddAdapters(graph, *report->lora,
                                                     &report->initializers);
                    }});
  }
  return list;
}

// A step in a file has its parameters already.
void RequireModel(const SessionOptions& options, const Graph& step) {
  const char* option = !options.lora.empty()    ? "`lora`"
                       : !options.stats.empty() ? "`stats`"
                       : !options.dump.empty()  ? "`dump`"
                                                : nullptr;
  if (!option) return;
  throw OptionError(Concat(option,
                           ": expected the model that the step was made from, "
                           "got the step ",
                           step.file));
}

// Brings the model's ops to the forms that the backward, FP8 and our kernels
// know.
Passes FusionPasses(bool packs_attention) {
  return {{"NormalizeLinear", NormalizeLinear},
          {"SliceBeforeProduct", SliceBeforeProduct, kMaySkip},
          {"FuseRotary", FuseRotary, kMaySkip},
          {"FuseAttention",
           [=](Graph& g) { FuseAttention(g, packs_attention); }, kMaySkip},
          {"KeepRowOrder", KeepRowOrder, kMaySkip},
          {"FuseActivations", FuseActivations, kMaySkip},
          {"FuseNorms", FuseNorms, kMaySkip}};
}

// Fusion comes before the backward: the ops that it makes have gradient rules
// of their own.
Passes ForwardPasses(StepBuilder& step, const StepSource& source,
                     StepKind kind) {
  bool evaluates = kind == StepKind::kEval;
  Passes list;
  if (evaluates) list.push_back({"InferenceMode", InferenceMode});
  if (kind == StepKind::kGradients) {
    list.push_back({"DropNothing", DropNothing});
  }
  list.push_back({"RemoveIdleDropout", RemoveIdleDropout});
  if (!source.segment_ids.empty()) {
    list.push_back({"MaskSegments", [&source](Graph& g) {
                      MaskSegments(g, source.segment_ids, *source.evaluator);
                    }});
  }
  if (!evaluates) {
    list.push_back({"AddStraightThrough", AddStraightThrough});
    list.push_back({"UnrollRecurrent", [&](Graph& g) { step.Unroll(g); }});
  }
  // Tensor parallelism divides the heads of q, k and v.
  Append(&list, FusionPasses(source.mesh.tp == 1));
  if (!source.loss.kind.empty()) {
    list.push_back({"AddLoss", [&](Graph& g) { step.Loss(g); }});
    list.push_back(
        {"FuseLoss", [&](Graph& g) { step.MergeLoss(g); }, kMaySkip});
  }
  if (source.dtype != DType::kFloat) {
    list.push_back(
        {"Autocast", [dtype = source.dtype](Graph& g) { Autocast(g, dtype); }});
  }
  if (source.mesh.tp > 1) {
    list.push_back({"SplitLayers", [&](Graph& g) { step.DivideLayers(g); }});
  }
  if (source.mesh.data_ranks() > 1 && TrainsOnSamples(kind)) {
    list.push_back({"ShareLoss", [&](Graph& g) { step.ShareLoss(g); }});
  }
  return list;
}

bool Recomputes(const StepSource& source, StepKind kind) {
  const bool searched = source.recompute == std::vector<std::string>{"auto"};
  const bool chosen = !source.recompute.empty() && !searched;
  return (source.choose_recomputed || chosen) && TrainsOnSamples(kind);
}

// FP8 comes after the backward: forward, dgrad and wgrad are products then.
Passes StepPasses(StepBuilder& step, const StepSource& source, StepKind kind,
                  bool input_gradients) {
  const bool shards = source.shard.what != Sharding::kNone;
  const Pass shard = {"ShardParameters", [&](Graph& g) { step.Shard(g); }};
  const bool splits = source.mesh.tp > 1;
  const Pass unmark = {"RemoveCopiesToRanks", RemoveCopiesToRanks};
  const Pass scales = {"ShareAmaxes",
                       [&](Graph& g) { step.ScalesOfWholes(g); }};
  const Pass measure = {"MeasureCasts", [&](Graph& g) { step.Measure(g); }};
  Passes list;
  if (kind == StepKind::kEval) {
    if (splits) list.push_back(unmark);
    list.push_back({"Fp8Rewrite", [&](Graph& g) { step.Quantize(g); }});
    list.push_back({"DropIdleAmaxes", [&](Graph& g) { step.DropAmaxes(g); }});
    if (source.extras.measures) list.push_back(measure);
    if (shards) list.push_back(shard);
  } else {
    list.push_back({"BuildBackward", [&, input_gradients](Graph& g) {
                      step.Differentiate(g, input_gradients);
                    }});
    list.push_back({"RemoveStraightThrough", RemoveStraightThrough});
    if (splits) list.push_back(unmark);
    // It replaces nodes, never values, so the gradients stay known.
    list.push_back({"FuseBiasGradients", FuseBiasGradients, kMaySkip});
    list.push_back({"Fp8Rewrite", [&](Graph& g) { step.Quantize(g); }});
    list.push_back({"DropIdleAmaxes", [&](Graph& g) { step.DropAmaxes(g); }});
    if (source.extras.measures) list.push_back(measure);
    if (Recomputes(source, kind)) {
      list.push_back({"Recompute", [&](Graph& g) { step.Recompute(g); }});
    }
    if (shards) list.push_back(shard);
  }
  if (splits) list.push_back(scales);
  if (kind == StepKind::kGradients) {
    list.push_back(
        {"OutputGradients", [&](Graph& g) { step.OutputGradients(g); }});
  } else if (kind == StepKind::kMicro) {
    list.push_back({"Accumulate", [&](Graph& g) { step.Accumulate(g); }});
  } else if (kind == StepKind::kTrain) {
    list.push_back({"Optimizer", [&](Graph& g) { step.Update(g); }});
  }
  if (TrainsOnSamples(kind)) {
    list.push_back(
        {"BindRunningStatistics", [&](Graph& g) { step.Statistics(g); }});
  }
  list.push_back({"Outputs", [&](Graph& g) { step.Outputs(g); }});
  return list;
}

Passes ApplyPasses(StepBuilder& step) {
  return {{"Optimizer", [&](Graph& g) { step.UpdateFromSums(g); }}};
}

Passes CleanUp() {
  return {{"Sort", [](Graph& graph) { graph.Sort(); }},
          {"FoldTranspose", FoldTranspose, kMaySkip},
          {"RemoveDeadCode", RemoveDeadCode}};
}

// It follows CleanUp, which folds the Transposes of a wgrad.
Passes LossPasses(const StepSource& source) {
  return {{"ChunkLoss", [bytes = source.loss_chunk_bytes](Graph& g) {
             ChunkLoss(g, bytes);
           }}};
}

// Most bytes of the sums that are one call.
int64_t BytesOfSums(const StepSource& source) {
  const Mesh& mesh = source.mesh;
  return source.bucket_bytes >= 0
             ? source.bucket_bytes
             : DefaultBucketBytes(std::max(mesh.dp, mesh.replicate));
}

// Most bytes of a layer that are gathered in one call; by default all.
int64_t BytesOfGathers(const StepSource& source) {
  return source.bucket_bytes >= 0 ? source.bucket_bytes
                                  : std::numeric_limits<int64_t>::max();
}

// The last passes: they look at the order of the nodes. Gathers move ahead of
// sums in buckets, not the other way round.
Passes CollectivePasses(const StepSource& source) {
  Passes list;
  if (source.mesh.data_ranks() == 1) return list;
  list.push_back({"BucketReductions", [bytes = BytesOfSums(source)](Graph& g) {
                    BucketReductions(g, bytes);
                  }});
  if (source.shard.what != Sharding::kNone && source.gathers_ahead) {
    list.push_back({"GatherAhead", [bytes = BytesOfGathers(source)](Graph& g) {
                      GatherAhead(g, bytes);
                    }});
  }
  return list;
}

Passes AveragePasses(StepBuilder& step, const StepSource& source,
                     StepKind kind) {
  if (kind != StepKind::kEval || source.averages.empty()) return {};
  return {{"ReadAverages", [&](Graph& g) { step.ReadAverages(g); }}};
}

Passes MasterPasses(StepBuilder& step, const StepSource& source) {
  if (!KeepsHalves(source.optimizer)) return {};
  return {{"StoreMasters", [&](Graph& g) { step.StoreMasters(g); }}};
}

Passes FrozenPasses(StepBuilder& step, const StepSource& source) {
  if (source.frozen == "float32") return {};
  return {{"StoreFrozen", [&](Graph& g) { step.StoreFrozen(g); }}};
}

// Whether codes of weights live from one graph to the next, in memory of their
// own.
bool CodesOutliveTheStep(const SessionOptions& options) {
  return options.grad_accum > 1 || options.primary_weights == "fp8";
}

// `kernels` and `options` must outlive the passes.
Passes KernelPasses(const KernelRegistry& kernels,
                    const SessionOptions& options, const Evaluator* evaluator,
                    const ExecutionChoice& choice = {}) {
  Passes list;
  // Steps that train are unrolled already.
  if (!kernels.Find("", "LSTM")) {
    list.push_back({"UnrollRecurrent", [&options](Graph& g) {
                      Spending spending(options.budgets);
                      UnrollRecurrent(g, &spending);
                    }});
  }
  Append(
      &list,
      {{"ExpandMissing",
        [&kernels, &options, evaluator](Graph& g) {
          ExpandMissing(g, kernels,
                        {options.expand.begin(), options.expand.end()},
                        evaluator, options.budgets,
                        options.strict ? Missing::kLeave : Missing::kExpand);
        }},
       {"CheckProducts", [&](Graph& g) { CheckProducts(g, kernels); }},
       {"JoinMasters", [&](Graph& g) { JoinMasters(g, kernels); }, kMaySkip},
       {"JoinMoments", [&](Graph& g) { JoinMoments(g, kernels); }, kMaySkip},
       {"MakeKMajor", [&](Graph& g) { MakeKMajor(g, kernels); }, kMaySkip},
       {"StoreMxScales", [&](Graph& g) { StoreMxScales(g, kernels); },
        kMaySkip},
       {"StoreNarrow", [&](Graph& g) { StoreNarrow(g, kernels); }, kMaySkip},
       {"PadOperands", [&](Graph& g) { PadOperands(g, kernels); }, kMaySkip},
       {"FuseQuantize", [&](Graph& g) { FuseQuantize(g, kernels); }, kMaySkip},
       {"JoinOrientations",
        [&kernels, joins = choice.joins_weights,
         outlive = CodesOutliveTheStep(options)](Graph& g) {
          JoinOrientations(g, kernels, joins, outlive);
        },
        kMaySkip},
       {"FuseColumnSums", [&](Graph& g) { FuseColumnSums(g, kernels); },
        kMaySkip},
       {"AddToSums", [&](Graph& g) { AddToSums(g, kernels); }, kMaySkip},
       {"JoinLossGradient", [&](Graph& g) { JoinLossGradient(g, kernels); },
        kMaySkip}});
  if (OffloadsMoments(options)) {
    list.push_back({"MarkOffloaded", MarkOffloaded});
  }
  if (choice.attention_workspace > 0) {
    list.push_back(
        {"BoundWorkspaces", [bytes = choice.attention_workspace](Graph& g) {
           BoundWorkspaces(g, bytes);
         }});
  }
  return list;
}

// Behind the pass that makes FP8 copies of weights state. `kernels` must
// outlive them.
Passes WeightCodePasses(const KernelRegistry& kernels) {
  return {{"JoinWeightCodes", [&](Graph& g) { JoinWeightCodes(g, kernels); },
           kMaySkip}};
}

// The passes know the weights of linear layers by their role, and masks by
// values that depend on no weight.
void MarkWeights(Graph& graph) {
  for (Value* value : graph.Initializers()) {
    bool fp8 = value->dtype == DType::kE4M3 || value->dtype == DType::kE5M2;
    bool multiplied = std::ranges::any_of(value->uses, [](const Node* node) {
      return FactsOf(*node).kind == OpKind::kProduct;
    });
    if (fp8 || (multiplied && value->rank() == 2)) {
      value->role = Role::kParameter;
    }
  }
}

void UnmarkWeights(Graph& graph) {
  for (Value* value : graph.Initializers()) value->role = Role::kNone;
}

bool IsStepOrNarrow(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) {
    bool narrow = std::ranges::any_of(node.outputs(), [](const Value* y) {
      return y && (y->dtype == DType::kFloat16 || y->dtype == DType::kBFloat16);
    });
    return narrow || FactsOf(node).kind == OpKind::kParameterUpdate;
  });
}

// A step in a file has all but the passes whose results depend on the purpose.
StepGraph BuildFileStep(const StepSource& source, StepKind kind,
                        const std::map<std::string, Shape>& shapes,
                        bool input_gradients, const InputValues& values) {
  Check(!input_gradients, "[", source.model->file,
        "] expected the model that the step was made from for gradients of "
        "inputs, got the step");
  Spending spending(source.budgets);
  StepGraph step;
  source.runner->Begin(Name(kind));
  source.runner->Source("Specialize", [&] {
    step = StartFileStep(source, kind, shapes, values, &spending);
    return step.graph.get();
  });
  Passes list;
  bool trains = kind != StepKind::kEval && kind != StepKind::kGradients;
  if (trains) {
    list.push_back({"KeepReport", [&](Graph&) { KeepReport(&step); }});
  } else if (kind == StepKind::kEval) {
    list.push_back({"KeepForward", [&](Graph&) { KeepForward(&step); }});
    list.push_back({"InferenceMode", InferenceMode});
  } else {
    list.push_back(
        {"KeepGradients", [&](Graph&) { KeepGradients(*source.step, &step); }});
    list.push_back({"DropNothing", DropNothing});
  }
  if (!trains) list.push_back({"RemoveIdleDropout", RemoveIdleDropout});
  Append(&list, CleanUp());
  if (!trains) list.push_back({"DropIdleState", DropIdleState});
  if (Recomputes(source, kind)) {
    list.push_back(
        {"Recompute", [&](Graph&) { RecomputeInStep(source, {}, &step); }});
  }
  if (!step.loss.empty()) Append(&list, LossPasses(source));
  source.runner->Run(list, *step.graph);
  return step;
}

// Draws other numbers than the steps do.
constexpr uint64_t kFirstDrawKey = 0x66697273745F7631;

// The outputs of a graph without inputs.
TensorMap Compute(const Graph& graph, const SessionOptions& options,
                  uint64_t draw) {
  std::unique_ptr<ExecutionProvider> provider =
      MakeProvider(ProviderNames().front());
  std::unique_ptr<Evaluator> evaluator = MakeEvaluator();
  Spending spending(options.budgets);
  std::shared_ptr<Graph> known =
      Specialize(graph, {}, *evaluator, nullptr, {}, &spending);
  PassRunner runner;
  runner.Begin("initialization");
  SessionOptions own;
  own.budgets = options.budgets;
  FitToKernels(*known, provider->Kernels(), own, *evaluator, runner);
  TensorMap state;
  return Executor(std::move(known), *provider).Run({}, state, draw);
}

void Assign(const std::string& name, const Tensor& first, Graph* graph) {
  const std::string where = Concat(
      "[", graph->file, "] the initialization_binding of \"", name, "\" ");
  Value* value = graph->Find(name);
  Check(value && value->is_initializer(), where,
        "expected an initializer, got ", value ? "another value" : "no value",
        " of that name");
  Check(first.dtype() == value->dtype && first.shape() == *value->shape, where,
        "expected a first value of ", Name(value->dtype), " ",
        ToString(*value->shape), ", got ", Name(first.dtype()), " ",
        ToString(first.shape()));
  value->data = first;
}

// Gives initializers of `graph` the values that the initializations of its file
// compute. Random numbers depend on options.seed. Errors: a binding of
// something that is no initializer, or of another type or shape; errors of the
// ops.
void SetFirstValues(const std::vector<Initialization>& initializations,
                    const SessionOptions& options, Graph* graph) {
  uint64_t draw = 0;
  for (const Initialization& first : initializations) {
    TensorMap values =
        Compute(*first.graph, options,
                RandomBits(options.seed ^ kFirstDrawKey, draw++));
    for (const auto& [name, output] : first.bindings) {
      Assign(name, values.at(output), graph);
    }
  }
}

// Draws missing tensors for which no weights are given.
void Draw(const SessionOptions& options, ImportReport* report, Graph* graph) {
  GivenWeights& given = report->given;
  const MissingData missing =
      WithoutWeights(report->missing, given.weights, *graph);
  if (missing.tensors.empty() && !given.path.empty()) {
    report->notes.push_back(
        Concat("[", given.path, "] has all weights whose data files are ",
               "missing: `init` ", options.init, " draws none"));
    return;
  }
  report->notes.push_back(
      DrawWeights(options.init, missing, options.seed, graph));
  given.drawn = missing.tensors;
  for (const std::string& name : missing.tensors) {
    report->missing.tensors.erase(name);
  }
  if (report->missing.tensors.empty()) report->missing = {};
}

// What ComputeInFloat does, but zeros that stand for missing numbers are not
// written.
void WidenMissing(const MissingData& missing, Graph* graph) {
  for (const std::string& name : missing.tensors) {
    Value* value = graph->Find(name);
    if (!value || !value->is_initializer() || !IsHalf(value->dtype)) continue;
    value->dtype = DType::kFloat;
    value->data = Tensor::Zeros(DType::kFloat, *value->shape);
  }
}

constexpr char kMicroCopies[] =
    "`primary_weights` fp8: each step makes the FP8 copies of weights once, "
    "for all of its micro-batches, and the last step's are gone";

std::string PrimaryRemark(const PrimaryWeights& kept) {
  if (kept.weights == 0) {
    return "`primary_weights` fp8: no product reads a weight in FP8";
  }
  return Concat("`primary_weights` fp8: ", kept.weights,
                kept.weights == 1 ? " weight lives" : " weights live",
                " from step to step as FP8 codes and scales (", kept.bytes,
                " bytes)");
}

// The dtypes and shapes that the file's axes tell. What an op can't tell stays
// unknown.
void InferWhatIsKnown(Graph& graph) {
  for (Node& node : graph.nodes()) {
    try {
      InferNode(node, graph.opset);
    } catch (const Error&) {
      // Unknown sizes may contradict an op's schema; Specialize judges models.
    }
  }
}

void FreezeParameters(Graph& graph) {
  for (Value* value : graph.Initializers()) {
    if (value->role == Role::kParameter) value->role = Role::kFrozen;
  }
}

// Bytes of the state that `maker` reads and the step does not, by name.
std::map<std::string, size_t> SetAside(const Graph& maker, const Graph& step) {
  std::map<std::string, size_t> bytes;
  for (const Value* value : maker.Initializers()) {
    const bool state = value->role != Role::kNone && !step.Find(value->name);
    if (state) bytes[value->name] = BytesOf(*value);
  }
  return bytes;
}

}  // namespace

// The lists of a step on one rank have all such passes. None of them runs.
std::vector<std::string> PassesToSkip() {
  const StepSource source{.loss = {.kind = "any"}};
  const StepLayout layout;
  const KernelRegistry kernels;
  const SessionOptions options;
  StepBuilder step(source, layout, StepKind::kTrain);
  Passes list = ForwardPasses(step, source, StepKind::kTrain);
  Append(&list, StepPasses(step, source, StepKind::kTrain, false));
  Append(&list, CleanUp());
  Append(&list, KernelPasses(kernels, options, nullptr));
  Append(&list, WeightCodePasses(kernels));
  std::vector<std::string> names;
  for (const Pass& pass : list) {
    if (pass.may_skip) names.push_back(pass.name);
  }
  return names;
}

PassRunner MakePassRunner(const SessionOptions& options) {
  std::vector<std::string> known = PassesToSkip();
  std::string names;
  for (const std::string& name : known) names += " " + name;
  for (const std::string& name : options.skip_passes) {
    Check(std::ranges::count(known, name) > 0,
          "expected passes that may be skipped (", names.substr(1), "), got ",
          name);
  }
  return PassRunner({options.dump_passes, options.skip_passes});
}

ServedGraph BuildServedGraph(std::unique_ptr<Graph> model, const Fp8Spec& spec,
                             const std::vector<ScaleSlot>* slots, DType dtype,
                             PassRunner& runner) {
  ServedGraph served;
  served.graph = std::move(model);
  Passes list = {{"InferenceMode", InferenceMode},
                 {"RemoveIdleDropout", RemoveIdleDropout},
                 {"InferWhatIsKnown", InferWhatIsKnown}};
  if (dtype != DType::kFloat) {
    list.push_back({"Autocast", [&](Graph& g) {
                      const FusedRoundings fused = RoundAsFused(g, dtype);
                      served.unknown_attention = fused.unknown_attention;
                      Autocast(g, dtype, fused.exceptions);
                    }});
  }
  list.push_back({"Fp8Rewrite",
                  [&](Graph& g) { Fp8Rewrite(g, spec, nullptr, {}, slots); }});
  list.push_back({"FreezeParameters", FreezeParameters});
  list.push_back({"Sort", [](Graph& g) { g.Sort(); }});
  list.push_back({"KeepFrozenCodes", [&](Graph& g) {
                    served.codes = KeepFrozenCodes(
                        g, [](const std::string& hint) { return hint; });
                  }});
  runner.Begin("served", Verifying::kNo);
  runner.Run(list, *served.graph);
  return served;
}

std::unique_ptr<Graph> ImportModel(const SessionOptions& options, ImportFor use,
                                   PassRunner& runner, ImportReport* report) {
  bool takes_steps = use == ImportFor::kSession || use == ImportFor::kReport;
  // A file may hold ops that only Specialize refuses, with the reason.
  runner.Begin("import", Verifying::kNo);
  auto graph = runner.Source("ReadModel", [&] {
    const bool begins =
        use == ImportFor::kSession || use == ImportFor::kTraining;
    const bool draws = begins && IsDrawn(options.init);
    const bool given = begins && !WeightsOf(options).empty();
    const bool forecasts =
        use == ImportFor::kForecast || use == ImportFor::kReport;
    const bool may_miss = draws || given || forecasts || options.lacks_weights;
    std::vector<Initialization> first;
    auto read = ReadModel(options.model,
                          {.algorithm = takes_steps,
                           .budgets = options.budgets,
                           .missing = may_miss ? &report->missing : nullptr,
                           .initializations = begins ? &first : nullptr});
    SetFirstValues(first, options, read.get());
    if (given) report->given = OpenWeights(options);
    if (draws) Draw(options, report, read.get());
    for (const std::string& file : report->missing.files) {
      report->notes.push_back(
          Concat(file, " does not exist: its tensors ",
                 given                   ? "come from " + report->given.path
                 : options.lacks_weights ? "come from the checkpoint"
                                         : "count as zeros",
                 ", so tensors that hold the same numbers are not tied"));
    }
    return read;
  });
  report->written = WrittenAs(*graph);
  if (!takes_steps) RequireNoStep(*graph);
  if (use != ImportFor::kReport) RequireNoOrtTrainingModel(*graph);
  if (IsStep(report->written)) {
    RequireModel(options, *graph);
    return graph;
  }
  WidenMissing(report->missing, graph.get());
  runner.Run(ImportPasses(options, report), *graph);
  if (report->lora) {
    DrawAdapters(report->adapters, *report->lora, options.seed, graph.get());
    report->notes.push_back(LoraNote(report->adapters, *report->lora, *graph));
  }
  if (IsLossFile(options.loss.kind)) {
    report->loss = AddLossFile(*graph, options.loss.kind, options.budgets);
  }
  return graph;
}

StepGraph BuildStepGraph(const StepSource& source, StepKind kind,
                         const std::map<std::string, Shape>& shapes,
                         bool input_gradients, const InputValues& values,
                         const std::optional<LabelType>& label,
                         const StepLayout& layout) {
  if (source.step) {
    return BuildFileStep(source, kind, shapes, input_gradients, values);
  }
  StepBuilder step(source, layout, kind, label);
  source.runner->Begin(Name(kind));
  source.runner->Source("Specialize", [&] {
    step.Start(shapes, values);
    return &step.graph();
  });
  Passes list = ForwardPasses(step, source, kind);
  Append(&list, StepPasses(step, source, kind, input_gradients));
  Append(&list, CleanUp());
  if (!source.loss.kind.empty()) Append(&list, LossPasses(source));
  Append(&list, CollectivePasses(source));
  if (kind == StepKind::kTrain && source.optimizer.release_gradients) {
    list.push_back({"RunUpdatesEarly", RunUpdatesEarly});
  }
  Append(&list, AveragePasses(step, source, kind));
  Append(&list, MasterPasses(step, source));
  Append(&list, FrozenPasses(step, source));
  if (source.extras.dumps) {
    list.push_back({"DumpProducts", [&](Graph& g) { step.Dump(g); }});
  }
  source.runner->Run(list, step.graph());
  return step.Take();
}

StepGraph BuildApplyGraph(const StepSource& source, const MicroSums& sums,
                          const StepLayout& layout) {
  if (source.step) {
    return BuildFileStep(source, StepKind::kApply, {}, false, {});
  }
  StepBuilder step(source, layout, StepKind::kApply);
  source.runner->Begin(Name(StepKind::kApply));
  source.runner->Source("AddSums", [&] {
    step.StartApply(sums);
    return &step.graph();
  });
  Passes list = ApplyPasses(step);
  Append(&list, CleanUp());
  Append(&list, CollectivePasses(source));
  Append(&list, MasterPasses(step, source));
  source.runner->Run(list, step.graph());
  return step.Take();
}

void FuseForward(Graph& graph, PassRunner& runner) {
  if (IsStepOrNarrow(graph)) return;
  Passes list = {{"RemoveIdleDropout", RemoveIdleDropout},
                 {"MarkWeights", MarkWeights}};
  Append(&list, FusionPasses(true));
  list.push_back({"UnmarkWeights", UnmarkWeights});
  Append(&list, CleanUp());
  runner.Run(list, graph);
}

void FitToKernels(Graph& graph, const KernelRegistry& kernels,
                  const SessionOptions& options, const Evaluator& evaluator,
                  PassRunner& runner, const ExecutionChoice& choice) {
  runner.Run(KernelPasses(kernels, options, &evaluator, choice), graph);
}

std::shared_ptr<const ReportLayout> AddReport(const StepGraph& step,
                                              PassRunner& runner) {
  if (step.kind == StepKind::kEval || step.kind == StepKind::kGradients) {
    return nullptr;
  }
  auto layout = std::make_shared<ReportLayout>();
  runner.Run({{"PackReport", [&](Graph& g) { *layout = PackReport(step, g); }}},
             *step.graph);
  return layout;
}

std::shared_ptr<Graph> SplitQuantizer(Graph& graph, Sharding sharding,
                                      PassRunner& runner) {
  std::shared_ptr<Graph> copies;
  const bool gathers = sharding != Sharding::kParameters;
  runner.Run({{"SplitWeightCopies",
               [&](Graph& g) { copies = SplitWeightCopies(g, gathers); }}},
             graph);
  return copies;
}

std::shared_ptr<Graph> KeepPrimaryWeights(const StepSource& source,
                                          const KernelRegistry& kernels,
                                          StepGraph* step) {
  if (!source.primary_weights) return nullptr;
  if (step->kind == StepKind::kMicro) step->primary_weights = kMicroCopies;
  if (step->kind != StepKind::kTrain) return nullptr;
  PrimaryWeights kept;
  const auto keep = [&](Graph& graph) {
    kept = KeepWeightCodes(
        graph,
        [&](const std::string& hint) { return StateName(*source.model, hint); },
        source.optimizer.release_gradients);
  };
  Passes list = {{"KeepPrimaryWeights", keep}};
  // An update beside the backward can't wait for a scale, which all of the
  // backward decides.
  if (!source.optimizer.release_gradients) {
    Append(&list, WeightCodePasses(kernels));
  }
  source.runner->Run(list, *step->graph);
  step->weight_copies = kept.copies;
  step->primary_weights = PrimaryRemark(kept);
  if (kept.maker) step->set_aside = SetAside(*kept.maker, *step->graph);
  return std::move(kept.maker);
}

}  // namespace onnx_fp8
