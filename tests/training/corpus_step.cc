// SPDX-License-Identifier: Apache-2.0
#include "tests/training/corpus_step.h"

#include <map>
#include <string>

namespace onnx_fp8 {

StepGraph BuildStepOf(const CorpusCase& c, const TrainingModel& model,
                      StepKind kind, const Evaluator& evaluator,
                      PassRunner& runner) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : model.graph->inputs) {
    shapes[input->name] = c.feeds.at(input->name).shape();
  }
  return BuildStepGraph(MakeStepSource(c.options, model, evaluator, runner),
                        kind, shapes, false, ValuesOf(*model.graph, c.feeds));
}

}  // namespace onnx_fp8
