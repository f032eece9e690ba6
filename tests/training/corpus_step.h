// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/evaluator.h"
#include "graph/passes/pass.h"
#include "tests/training/corpus_case.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {

// The graph that a session builds to run `model`, which is the case's, with the
// case's feeds.
StepGraph BuildStepOf(const CorpusCase& c, const TrainingModel& model,
                      StepKind kind, const Evaluator& evaluator,
                      PassRunner& runner);

}  // namespace onnx_fp8
