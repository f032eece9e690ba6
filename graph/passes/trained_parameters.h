// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct ParameterPatterns {
  // Globs (fnmatch) over FQNs and initializer names. `freeze` takes parameters
  // out of training, `train` then puts initializers in (scalars too): so freeze
  // {"*"}, train {"*lora*"} trains the LoRA weights only.
  std::vector<std::string> train;
  std::vector<std::string> freeze;
};

struct InitializerReport {
  Value* value;
  // Why it has its role, for people: "trained: meets data at MatMul node_7".
  std::string reason;
};

// Sets Value::role of every initializer. The rule (docs/design.md, "Which
// initializers are trained"): a float initializer travels forward through views
// and element-wise ops among its like; it is a parameter if it so arrives at an
// operation together with a live value, one that depends on a float graph
// input or on a looked-up parameter, or at a lookup (Gather) with computed
// indices, and unless its values show it to be a table (fixed_tables.h).
// Running statistics of a training BatchNormalization are state. Reports every
// initializer, in order. Errors: a pattern that matches no float initializer.
std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns = {});

}  // namespace onnx_fp8
