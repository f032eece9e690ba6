// SPDX-License-Identifier: Apache-2.0
//
// Files that `rewrite` made from a model: their kind, and the commands that
// can't use them.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace onnx_fp8 {

// The metadata with the recipe's label, which StepFile and RewriteModel leave.
inline constexpr char kRecipeNote[] = "onnx_fp8.recipe";

// The metadata with the slots of delayed and static scales, as SlotsText.
inline constexpr char kScaleSlotsNote[] = "onnx_fp8.scale_slots";

enum class Written {
  kNo,           // a model as exported
  kForward,      // its forward pass in FP8
  kStep,         // a whole training step
  kMicroStep,    // a step's part that runs for each micro-batch
  kUpdate,       // a step's part after the last micro-batch
  kForeignStep,  // a training step of another program
};

// The role of a state tensor by its name, in a file without notes. kBound for a
// name that is not ours.
Role RoleOfName(std::string_view name);

// Decides by the state that the file binds and by its metadata. REQUIRES: a
// graph as ReadModel leaves it.
Written WrittenAs(const Graph& graph);

// Whether each run of the file gives its state new values.
bool IsStep(Written kind);

// OUT.apply.onnx for OUT.onnx: the file of the update that belongs to a part
// for each micro-batch.
std::string ApplyPath(const std::string& path);

// "[step.onnx] is a whole training step that `StepFile` wrote (recipe off)".
std::string DescribeWritten(const Graph& graph, Written kind);

// Errors: the file is a training step, or part of one. REQUIRES: WrittenAs's.
void RequireNoStep(const Graph& graph);

// Errors: the file is a forward pass in FP8, which has no gradient. For any
// graph made from the file.
void RequireNoForward(const Graph& graph);

}  // namespace onnx_fp8
