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

// Who says what a tensor is.
enum class Evidence {
  kRule,    // nobody: it is concluded from the graph and from values
  kKind,    // PyTorch's exporter
  kRecord,  // onnx_fp8.torch.export
  kLora,    // nobody: the tensor is an adapter that the caller asks for
  kFlag     // the caller
};

struct InitializerReport {
  std::string name;
  // The initializer or the Constant node's output. For a tied copy, the tensor
  // with which it became one.
  Value* value;
  Tensor data;
  // Why it has its role, for people: "trained: meets data at MatMul node_7".
  std::string reason = {};
  Evidence evidence = Evidence::kRule;
  // The noun that counts a tensor that is not trained ("statistic").
  std::string noun = {};
  bool by_values = false;  // not trained because of its values
  // PyTorch's name for it; for a constant, its own name.
  ParameterName torch = {};
  // For a tied copy: the first's name, and whether it is the first's transpose.
  // The copy is no initializer any more.
  std::string tied_to = {};
  bool transposed = false;
};

// Sets Value::role of every initializer. The evidence, the strongest first
// (docs/design.md, "Trained or not"):
// - `patterns`;
// - the record of onnx_fp8.torch.export (graph/export_record.h);
// - the kinds that PyTorch's exporter writes. They do not tell frozen from
//   trained parameters, so a whole table of sines and cosines stays still;
// - structure (parameter_rule.h). A single number that the file may have from
//   the arithmetic stays still, unless PyTorch wrote it as a named initializer
//   of rank 0 that data are multiplied by, divided by or raised to, in a file
//   without kinds;
// - values (fixed_tables.h), where structure cannot tell: masks and Fourier
//   bases anywhere, other tables where a tensor meets data in arithmetic, never
//   in a layer or a norm.
// Running statistics of a training BatchNormalization are state; tensors that
// the file binds stay state.
//
// A Constant node that gets a role becomes an initializer of its output's name.
// Ties are made before the patterns are applied: a pattern that matches one
// name counts for both. A record names ties, and may say that there are no
// others.
//
// Reports every initializer, in order, then float Constant nodes, except single
// numbers that are not trained. `notes` may be null; it gets facts for the
// user. Errors: a pattern that matches none of them, a named pair that does not
// exist or holds other numbers, a record that cannot be read.
std::vector<InitializerReport> MarkParameters(
    Graph& graph, const ParameterPatterns& patterns = {},
    std::vector<std::string>* notes = nullptr);

}  // namespace onnx_fp8
