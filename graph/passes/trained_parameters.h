// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"

namespace onnx_fp8 {

struct ParameterPatterns {
  // Globs (fnmatch) over FQNs and initializer names. `freeze` takes parameters
  // out of training, `train` then puts initializers in (scalars too): so freeze
  // {"*"}, train {"*lora*"} trains the LoRA weights only.
  std::vector<std::string> train;
  std::vector<std::string> freeze;
  // Whether copies of one weight become one tensor (tied_weights.h), and pairs
  // "A=B" of names whose tensors do because the caller says so.
  bool tie_copies = false;
  std::vector<std::string> ties = {};
};

struct InitializerReport {
  std::string name;
  // The initializer or the Constant node's output. Of a tied copy, the tensor
  // with which it became one.
  Value* value;
  Tensor data;
  // Why it has its role, for people: "trained: meets data at MatMul node_7".
  std::string reason;
  // PyTorch's name for it; for a constant, its own name.
  ParameterName torch = {};
  // Of a tied copy: the first's name, and whether it is the first's transpose.
  // The copy is no initializer any more.
  std::string tied_to = {};
  bool transposed = false;
};

// Sets Value::role of every initializer. The rule (docs/design.md, "Trained or
// not"): a float constant (an initializer, or a Constant node outside of
// subgraphs) travels forward through views (Resize and Pad among them) and
// element-wise ops with other such constants. It is a parameter if it arrives
// in this way
// - at an operation together with a live value, which depends on a float graph
//   input or on a weight found before. Bounds and fill values do not count, nor
//   does a single number at Max, Min and Pow;
// - at a product (MatMul, Gemm, Conv, Einsum, recurrent layers) with values
//   computed from an integer input: one-hot tokens, pixels. Positions and masks
//   are such values too, but they meet tables in other ops; in products they
//   meet frequencies, which are recognized because they fall;
// - at a lookup (Gather) with computed indices;
// unless its own values show that it is a table (fixed_tables.h). Running
// statistics of a training BatchNormalization are state; tensors that the file
// binds stay state.
//
// A Constant node that gets a role becomes an initializer of its output's name.
// Ties are made before the patterns are applied: a pattern that matches one
// name counts for both.
//
// Reports every initializer, in order, then float Constant nodes, except single
// numbers that are not trained. Errors: a pattern that matches none of them, a
// named pair that does not exist or holds other numbers.
std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns = {});

}  // namespace onnx_fp8
