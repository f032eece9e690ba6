// SPDX-License-Identifier: Apache-2.0
//
// The imported model of a run: roles set, parameters named, initial values in
// place.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "graph/passes/add_adapters.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor_source.h"
#include "training/step/loss_file.h"
#include "training/step/pipelines.h"
#include "training/step/step_from_file.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// A tensor of the file that became one with another one; see
// graph/passes/tied_weights.h.
struct TiedCopy {
  std::string name;
  ParameterName torch;
  DType dtype;
  Shape shape;
  std::string first;  // the initializer that replaced it
  bool transposed = false;
};

struct TrainingModel {
  std::unique_ptr<Graph> graph;
  LossSpec loss;  // as in the options, with logits named; of a loss in a file
                  // the output that it became
  std::optional<LossFile> loss_file;
  ParameterNames names;
  StaticScales scales;
  std::vector<std::string> notes;      // for the user
  std::string trains;                  // TrainingSession::Trains
  std::vector<ParameterInfo> tensors;  // TrainingSession::Tensors
  std::vector<TiedCopy> copies;
  // With the option `lora`: what it says, and the adapters in the graph.
  std::optional<LoraSpec> lora;
  std::vector<Adapter> adapters;
  std::string added_segments;  // the input that `segment_ids` has added
  // Values of given weights for parameters, which the graph does not have yet:
  // whoever needs one takes it.
  SourceMap first;
  // How many batches moved the running statistics of a layer before training,
  // by PyTorch's names, where given weights tell.
  TensorMap batches;
  // Not null: the file is a training step.
  std::shared_ptr<const FileStep> step;

  std::vector<InputInfo> Inputs() const;
  // All parameters, trained and frozen, in the file's order.
  std::vector<ParameterInfo> Parameters() const;
  // Identifies the model for checkpoints: names, dtypes and shapes of all
  // inputs, outputs and parameters. The loss is no part of the model.
  std::string Fingerprint() const;
  // Adds the tensors of the tied copies.
  SourceMap WithCopies(SourceMap weights) const;
  // Names of all parameters and of copies that PyTorch has a name for.
  ParameterNames AllNames() const;
  // The first value of an initializer, from `first` or else from the graph.
  TensorSource TakeFirst(const Value* value);
  // Whether an input came with the loss in a file.
  bool IsLabelOfFile(const Value& input) const;
};

// Reads options.model and its weights. Errors: as TrainingSession::Create's; a
// file that is a training step already. REQUIRES: use is not kReport.
TrainingModel LoadTrainingModel(const SessionOptions& options,
                                PassRunner& runner,
                                ImportFor use = ImportFor::kTraining);

// The same for a session: the file may be a training step, which decides some
// of the options. The session takes the values in `first`, one by one. Errors:
// OpenFileStep's.
TrainingModel LoadSessionModel(SessionOptions* options, PassRunner& runner);

// `mesh`: the ranks that train together; `tensor_rank` and `shard_rank`: the
// places of this rank on the axes tp and dp. `model`, `evaluator` and `runner`
// must outlive the result.
StepSource MakeStepSource(const SessionOptions& options,
                          const TrainingModel& model,
                          const Evaluator& evaluator, PassRunner& runner,
                          const Mesh& mesh = {}, int64_t tensor_rank = 0,
                          int64_t shard_rank = 0);

// Names of the trained parameters on which none of the outputs depends
// smoothly: a step gives them no gradient and leaves them as they are. Call it
// on a model as it is imported; bodies of If, Loop and Scan count as a whole.
std::set<std::string> UnusedParameters(const Graph& graph,
                                       const std::vector<std::string>& outputs);

}  // namespace onnx_fp8
