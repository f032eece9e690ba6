// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outputs.h"

#include <algorithm>

#include "cli/text.h"
#include "graph/onnx_io.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {

std::string LossOutput(const LossSpec& loss, const std::string& model) {
  if (loss.kind.starts_with("output:")) return loss.logits;
  std::vector<std::string> names;
  std::unique_ptr<Graph> graph = ReadModel(model);
  for (const Value* value : graph->outputs) names.push_back(value->name);
  Check(!names.empty(), "[", model, "] expected a model with outputs");
  if (loss.logits.empty()) return names[0];
  Check(std::ranges::find(names, loss.logits) != names.end(), "[", model,
        "] expected an output named ", loss.logits, ", got ", Joined(names));
  return loss.logits;
}

}  // namespace onnx_fp8
