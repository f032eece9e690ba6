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
  // Whether copies of one weight become one (tied_weights.h), and pairs "A=B"
  // of names whose tensors do, because the caller says so.
  bool tie_copies = false;
  std::vector<std::string> ties = {};
};

struct InitializerReport {
  std::string name;
  // The initializer or the Constant node's output; of a tied copy the tensor
  // that it is one with.
  Value* value;
  Tensor data;
  // Why it has its role, for people: "trained: meets data at MatMul node_7".
  std::string reason;
  // What PyTorch calls it; of a constant its name.
  ParameterName torch = {};
  // Of a tied copy: the first's name, and whether it is the first's transpose.
  // It is no initializer any more.
  std::string tied_to = {};
  bool transposed = false;
};

// Sets Value::role of every initializer. The rule (docs/design.md, "Trained or
// not"): a float constant, which is an initializer or a Constant node outside
// of subgraphs, travels forward through views (Resize and Pad among them) and
// element-wise ops among its like. It is a parameter if it so arrives
// - at an operation together with a live value, one that depends on a float
//   graph input or on a weight found before, as a bound, a fill value or, at
//   Max, Min and Pow, one number does not;
// - at a product (MatMul, Gemm, Conv, Einsum, recurrent layers) with values
//   computed from an integer input: one-hot tokens, pixels. Positions and masks
//   are such values too, but they meet tables elsewhere; at products they meet
//   frequencies, which are told by falling;
// - at a lookup (Gather) with computed indices;
// unless its own values show it to be a table (fixed_tables.h). Running
// statistics of a training BatchNormalization are state; what the file binds
// stays state.
//
// A Constant node that gets a role becomes an initializer of its output's name.
// A tie is made before the patterns are looked at: what they say of one name
// counts for both.
//
// Reports every initializer, in order, then float Constant nodes but for single
// numbers that are not trained. Errors: a pattern that matches none of them, a
// named pair that is not there or holds other numbers.
std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns = {});

}  // namespace onnx_fp8
