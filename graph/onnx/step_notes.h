// SPDX-License-Identifier: Apache-2.0
//
// The notes of a training step in a file: the facts that its graph does not
// hold. They are one JSON text among the file's metadata (docs/formats.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"

namespace onnx_fp8 {

// The name of the notes among a file's metadata.
inline constexpr char kStepNotes[] = "onnx_fp8.step";

// A tensor of the model that the step lacks, because it holds the same numbers
// as `first`.
struct NotedCopy {
  std::string name;
  ParameterName torch;
  std::string first;
  bool transposed = false;
};

struct StepNotes {
  std::string part;  // "whole", "micro" or "apply"
  // The options that decided the graph, by name; training/step/step_settings.h.
  std::map<std::string, std::string> settings;
  // Values of the graph by purpose: lr (an input), loss, grad_norm, ok, amax,
  // loss_scale, and seed, with which the backward begins.
  std::map<std::string, std::string> values;
  std::vector<std::string> amax_labels;  // one for each element of amax
  // Roles of the initializers that are no plain constants.
  std::map<std::string, Role> roles;
  ParameterNames names;
  std::vector<NotedCopy> copies;

  // The value of that purpose; "" if there is none.
  std::string Value(const std::string& purpose) const {
    auto it = values.find(purpose);
    return it == values.end() ? "" : it->second;
  }
};

std::string NotesText(const StepNotes& notes);

// Errors: another text, or a later version's; they name `file`.
StepNotes ParseNotes(const std::string& text, const std::string& file);

}  // namespace onnx_fp8
