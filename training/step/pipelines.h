// SPDX-License-Identifier: Apache-2.0
//
// All pipelines: which passes run, and in which order. Only pipelines.cc has
// these lists; graph/rewrite/rewrite_model.cc, which edits a file and keeps its
// other nodes, has its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/written_file.h"
#include "graph/passes/add_adapters.h"
#include "graph/passes/pass.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/session.h"
#include "providers/kernel.h"
#include "training/step/given_weights.h"
#include "training/step/loss_file.h"
#include "training/step/step_graph.h"
#include "training/step/step_report.h"

namespace onnx_fp8 {

// Names that SessionOptions::skip_passes may have.
std::vector<std::string> PassesToSkip();

// The runner for these options. Errors: a pass that may not be skipped.
PassRunner MakePassRunner(const SessionOptions& options);

// Results of importing a model.
struct ImportReport {
  Written written = Written::kNo;
  std::string batch_norm_note;  // "" if there is nothing to say
  // Tensors that are one or two, and other facts for the user.
  std::vector<std::string> notes;
  std::vector<InitializerReport> initializers;
  std::optional<LoraSpec> lora;  // of the option
  std::vector<Adapter> adapters;
  std::string added_segments;  // the input that options.segment_ids has added
  // With kReport and kForecast, and with weights of other files or of a
  // checkpoint: without those that options.init draws.
  MissingData missing;
  GivenWeights given;            // for kTraining and kSession
  std::optional<LossFile> loss;  // if it lies in a file
};

enum class ImportFor {
  kTraining,  // refuses a file that is a training step
  kSession,   // a step is left as it is
  kReport,    // any file, a step as well; data files may be missing
  kForecast,  // as kTraining; data files may be missing
};

// The options' model, prepared for training: 16-bit types are widened, roles
// are set, and a loss in a file is added. A training step stays as it is in the
// file. Errors: as ReadModel's, the passes' and AddLossFile's.
std::unique_ptr<Graph> ImportModel(const SessionOptions& options, ImportFor use,
                                   PassRunner& runner, ImportReport* report);

// The forward of a model whose FP8 weights are codes.
struct ServedGraph {
  std::unique_ptr<Graph> graph;
  // They make the codes and scales that the graph reads as state.
  std::vector<FrozenCodes> codes;
  // In 16 bits: FusedRoundings'.
  int unknown_attention = 0;
};

// `model`: as imported; its axes stay as they are in the file. `slots`: the
// kept scales, as in Fp8Rewrite, with their numbers as ScaleSlot::scale; null:
// spec.scales has them. Errors: Fp8Rewrite's.
ServedGraph BuildServedGraph(std::unique_ptr<Graph> model, const Fp8Spec& spec,
                             const std::vector<ScaleSlot>* slots, DType dtype,
                             PassRunner& runner);

// Fuses ops of a model that runs as it is, as steps and evaluations do; a
// training step is left alone, because it is fused already, and so is a model
// that computes in 16 bits. REQUIRES: concrete shapes, initializers without
// roles.
void FuseForward(Graph& graph, PassRunner& runner);

// The last passes before a plan: ops without a kernel of the provider are
// replaced by their bodies. Errors: as ExpandMissing's.
void FitToKernels(Graph& graph, const KernelRegistry& kernels,
                  const SessionOptions& options, const Evaluator& evaluator,
                  PassRunner& runner, const ExecutionChoice& choice = {});

// Packs what a step reports into one output (step_report.h); null for a graph
// that updates nothing. Comes before FitToKernels.
std::shared_ptr<const ReportLayout> AddReport(const StepGraph& step,
                                              PassRunner& runner);

// Moves the quantization and the rounding of weights out of a kMicro graph, as
// SplitWeightCopies does, and their all-gathers, unless whole parameters exist
// only while they are used; null if there is nothing to move.
std::shared_ptr<Graph> SplitQuantizer(Graph& graph, Sharding sharding,
                                      PassRunner& runner);

// If the source wants it, a kTrain graph keeps FP8 copies of weights as state
// (graph/fp8/primary_weights.h). Returns the graph that makes them anew; null:
// there are none. A kMicro graph only gets a remark: its session keeps copies
// of its own. Updates that end the step make the codes (JoinWeightCodes), if
// their kernels can. Comes behind FitToKernels.
std::shared_ptr<Graph> KeepPrimaryWeights(const StepSource& source,
                                          const KernelRegistry& kernels,
                                          StepGraph* step);

}  // namespace onnx_fp8
