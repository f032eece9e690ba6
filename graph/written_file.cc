// SPDX-License-Identifier: Apache-2.0
#include "graph/written_file.h"

#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// The metadata that WriteTrainingStep and RewriteModel leave.
constexpr char kRecipe[] = "onnx_fp8.recipe";

const char* Text(Written kind) {
  switch (kind) {
    case Written::kForward:
      return "a forward pass in FP8 that `onnx-fp8 rewrite` wrote";
    case Written::kMicroStep:
      return "the part of a training step for each micro-batch that `onnx-fp8 "
             "rewrite --grad-accum` wrote";
    case Written::kUpdate:
      return "the update of a training step that `onnx-fp8 rewrite "
             "--grad-accum` wrote";
    default:
      return "a whole training step that `onnx-fp8 rewrite --loss` wrote";
  }
}

}  // namespace

Written WrittenAs(const Graph& graph) {
  bool any = false, sums = false, only_scales = true;
  for (const Value* value : graph.Initializers()) {
    if (value->role != Role::kState) continue;
    any = true;
    sums |= value->name.starts_with("micro.");
    only_scales &= value->name.starts_with("fp8.");
  }
  if (any && !only_scales) {
    if (!sums) return Written::kStep;
    return graph.inputs.empty() ? Written::kUpdate : Written::kMicroStep;
  }
  return graph.metadata.contains(kRecipe) ? Written::kForward : Written::kNo;
}

std::string DescribeWritten(const Graph& graph, Written kind) {
  auto recipe = graph.metadata.find(kRecipe);
  return Concat("[", graph.file, "] is ", Text(kind),
                recipe == graph.metadata.end()
                    ? ""
                    : Concat(" (recipe ", recipe->second, ")"));
}

void RequireNoStep(const Graph& graph) {
  Written kind = WrittenAs(graph);
  if (kind == Written::kNo || kind == Written::kForward) return;
  Fail(DescribeWritten(graph, kind),
       ": expected the model that it was made from; a runtime trains with this "
       "file by feeding its state back");
}

void RequireNoForward(const Graph& graph) {
  if (!graph.metadata.contains(kRecipe)) return;
  Fail(DescribeWritten(graph, Written::kForward),
       ": it has no gradient; expected the model that it was made from, with "
       "--recipe for FP8");
}

}  // namespace onnx_fp8
