// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/written_file.h"

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// The metadata that StepFile and RewriteModel leave.
constexpr char kRecipe[] = "onnx_fp8.recipe";

const char* Text(Written kind) {
  switch (kind) {
    case Written::kForward:
      return "a forward pass in FP8 that `RewriteModel` wrote";
    case Written::kMicroStep:
      return "the part of a training step for each micro-batch that "
             "`StepFile` with `grad_accum` wrote";
    case Written::kUpdate:
      return "the update of a training step that `StepFile` with "
             "`grad_accum` wrote";
    default:
      return "a whole training step that `StepFile` wrote";
  }
}

}  // namespace

Role RoleOfName(std::string_view name) {
  if (name.starts_with("fp8.")) return Role::kScale;
  if (name.starts_with("micro.")) return Role::kSum;
  return Role::kBound;
}

Written WrittenAs(const Graph& graph) {
  bool any = false, sums = false, only_scales = true;
  for (const Value* value : graph.Initializers()) {
    if (!IsState(value->role)) continue;
    any = true;
    sums |= value->role == Role::kSum;
    only_scales &= value->role == Role::kScale;
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
       "`recipe` for FP8");
}

}  // namespace onnx_fp8
