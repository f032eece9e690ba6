// SPDX-License-Identifier: Apache-2.0
//
// The imported model of a run: roles set, parameters named, initial values in
// place.
#pragma once

#include <memory>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/session.h"
#include "training/step_graph.h"

namespace onnx_fp8 {

struct TrainingModel {
  std::unique_ptr<Graph> graph;
  ParameterNames names;
  StaticScales scales;
  std::vector<std::string> notes;  // for the user

  // Trained and frozen ones, in the file's order.
  std::vector<ParameterInfo> Parameters() const;
};

// Reads options.model and options.init. Errors: as TrainingSession::Create's.
TrainingModel LoadTrainingModel(const SessionOptions& options);

// `model` and `evaluator` must outlive the result.
StepSource MakeStepSource(const SessionOptions& options,
                          const TrainingModel& model,
                          const Evaluator& evaluator);

}  // namespace onnx_fp8
