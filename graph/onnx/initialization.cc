// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/initialization.h"

#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "graph/onnx/check_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/training_info_internal.h"

namespace onnx_fp8 {
namespace {

void AddBinding(const onnx::StringStringEntryProto& entry,
                const std::unordered_set<const Value*>& outputs,
                Initialization* first) {
  const Graph& graph = *first->graph;
  const std::string where =
      Concat("[", graph.file, "] the initialization_binding of \"", entry.key(),
             "\" ");
  const Value* value = graph.Find(entry.value());
  Check(value && outputs.contains(value), where,
        "expected an output of the initialization, got \"", entry.value(),
        "\", which is ", value ? "none of them" : "no value");
  Check(first->bindings.emplace(entry.key(), entry.value()).second, where,
        "expected one first value, got a second one, \"", entry.value(), "\"");
}

}  // namespace

std::vector<Initialization> ReadInitializations(const ModelFile& file,
                                                const Budgets& budgets) {
  std::vector<Initialization> all;
  for (const auto& info : file.model.training_info()) {
    if (info.initialization_binding().empty()) continue;
    ModelFile one;
    one.path = file.path;
    one.external = file.external;
    one.model.set_ir_version(file.model.ir_version());
    *one.model.mutable_opset_import() = file.model.opset_import();
    *one.model.mutable_functions() = file.model.functions();
    *one.model.mutable_graph() = info.initialization();
    CheckFunctions(one.model, file.path, budgets);
    Initialization first{ImportModelFile(std::move(one)), {}};
    Check(first.graph->inputs.empty(), "[", file.path,
          "] expected an initialization without inputs, got the input ",
          first.graph->inputs.empty() ? "" : first.graph->inputs[0]->name);
    std::unordered_set<const Value*> outputs(first.graph->outputs.begin(),
                                             first.graph->outputs.end());
    for (const auto& entry : info.initialization_binding()) {
      AddBinding(entry, outputs, &first);
    }
    all.push_back(std::move(first));
  }
  return all;
}

}  // namespace onnx_fp8
