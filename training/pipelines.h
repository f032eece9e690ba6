// SPDX-License-Identifier: Apache-2.0
//
// All pipelines: which passes run, and in which order. The lists are in
// pipelines.cc and nowhere else; graph/rewrite/rewrite_model.cc, which edits a
// file and keeps its other nodes, has its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "graph/pass.h"
#include "graph/passes/trained_parameters.h"
#include "graph/written_file.h"
#include "onnx_fp8/session.h"
#include "providers/kernel.h"
#include "training/step_graph.h"

namespace onnx_fp8 {

// Names that SessionOptions::skip_passes may have.
std::vector<std::string> PassesToSkip();

// The runner that the options ask for. Errors: a pass that may not be skipped.
PassRunner MakePassRunner(const SessionOptions& options);

// What the import of a model found out.
struct ImportReport {
  Written written = Written::kNo;
  std::string batch_norm_note;  // "" if there is nothing to say
  std::vector<InitializerReport> initializers;
};

enum class ImportFor {
  kTraining,  // refuses a file that is a training step
  kReport,    // any file
};

// The options' model, made fit for training: 16-bit types are widened, roles
// are set. Errors: those of ReadModel and of the passes.
std::unique_ptr<Graph> ImportModel(const SessionOptions& options, ImportFor use,
                                   PassRunner& runner, ImportReport* report);

// The last passes before a plan: bodies in the place of ops that the provider
// has no kernel for. Errors: those of ExpandMissing.
void FitToKernels(Graph& graph, const KernelRegistry& kernels,
                  const SessionOptions& options, const Evaluator& evaluator,
                  PassRunner& runner);

// Takes the quantisation of weights out of a kMicro graph, as
// SplitWeightCopies does; null where there is none.
std::shared_ptr<Graph> SplitQuantiser(Graph& graph, PassRunner& runner);

}  // namespace onnx_fp8
