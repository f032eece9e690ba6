// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outputs.h"

#include <algorithm>

#include "cli/text.h"
#include "graph/onnx_io.h"
#include "graph/written_file.h"
#include "onnx_fp8/check.h"
#include "training/loss.h"

namespace onnx_fp8 {
namespace {

std::string OutputOf(const LossSpec& loss, const Graph& graph,
                     const std::string& model) {
  std::optional<std::string> own = OwnOutput(loss.kind);
  std::string wanted = own.value_or(loss.logits);
  std::vector<std::string> names;
  for (const Value* value : graph.outputs) names.push_back(value->name);
  Check(!names.empty(), "[", model,
        "] expected a model with outputs, got none");
  if (wanted.empty()) return names[0];
  Check(std::ranges::find(names, wanted) != names.end(), "[", model,
        "] expected an output named ", wanted, ", got ", Joined(names));
  return own ? loss.logits : wanted;
}

}  // namespace

std::string LossOutput(const LossSpec& loss, const std::string& model,
                       const Budgets& budgets) {
  std::unique_ptr<Graph> graph = ReadModel(model, {.budgets = budgets});
  RequireNoStep(*graph);
  return OutputOf(loss, *graph, model);
}

std::string TrainedOutput(const LossSpec& loss, const std::string& model,
                          const Budgets& budgets) {
  std::unique_ptr<Graph> graph = ReadModel(model, {.budgets = budgets});
  RequireNoStep(*graph);
  RequireNoForward(*graph);
  return OutputOf(loss, *graph, model);
}

}  // namespace onnx_fp8
