// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/written_file.h"

#include <algorithm>

#include "base/check.h"
#include "graph/onnx/step_notes.h"

namespace onnx_fp8 {
namespace {

const char* Text(Written kind) {
  switch (kind) {
    case Written::kForward:
      return "a forward pass in FP8 that `rewrite()` wrote";
    case Written::kMicroStep:
      return "the part of a training step for each micro-batch that "
             "`rewrite()` with `grad_accum` wrote";
    case Written::kUpdate:
      return "the update of a training step that `rewrite()` with "
             "`grad_accum` wrote";
    case Written::kForeignStep:
      return "a training step of another program";
    default:
      return "a whole training step that `rewrite()` with `loss` wrote";
  }
}

}  // namespace

Role RoleOfName(std::string_view name) {
  if (name.starts_with("fp8.")) return Role::kScale;
  if (name.starts_with("micro.")) return Role::kSum;
  return Role::kBound;
}

Written WrittenAs(const Graph& graph) {
  bool sums = false, only_scales = true;
  for (const StateBinding& binding : graph.state) {
    sums |= binding.state->role == Role::kSum;
    only_scales &= binding.state->role == Role::kScale;
  }
  bool ours = graph.metadata.contains(kRecipeNote);
  bool noted = graph.metadata.contains(kStepNotes);
  if (noted || (!graph.state.empty() && !only_scales)) {
    if (!ours && !noted) return Written::kForeignStep;
    if (!sums) return Written::kStep;
    bool feeds = std::ranges::any_of(graph.inputs, [](const Value* input) {
      return !input->is_initializer();
    });
    return feeds ? Written::kMicroStep : Written::kUpdate;
  }
  return ours ? Written::kForward : Written::kNo;
}

std::string DescribeWritten(const Graph& graph, Written kind) {
  auto recipe = graph.metadata.find(kRecipeNote);
  return Concat("[", graph.file, "] is ", Text(kind),
                recipe == graph.metadata.end()
                    ? ""
                    : Concat(" (recipe ", recipe->second, ")"));
}

void RequireNoStep(const Graph& graph) {
  Written kind = WrittenAs(graph);
  if (!IsStep(kind)) return;
  Fail(DescribeWritten(graph, kind),
       ": expected the model that it was made from");
}

std::string ApplyPath(const std::string& path) {
  std::string stem =
      path.ends_with(".onnx") ? path.substr(0, path.size() - 5) : path;
  return stem + ".apply.onnx";
}

bool IsStep(Written kind) {
  return kind != Written::kNo && kind != Written::kForward;
}

void RequireNoForward(const Graph& graph) {
  if (!graph.metadata.contains(kRecipeNote)) return;
  Fail(DescribeWritten(graph, Written::kForward),
       ": it has no gradient; expected the model that it was made from, with "
       "`recipe` for FP8");
}

}  // namespace onnx_fp8
