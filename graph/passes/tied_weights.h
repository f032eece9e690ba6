// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's exporter folds the Transpose of a linear layer's weight into a new
// tensor. An embedding that is also the last layer's weight is then in the file
// twice, and would be trained as two weights.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct Tie {
  Value* first;   // an initializer
  Value* second;  // another one with its numbers
  bool transposed = false;
};

// Whether b holds the numbers of a: false: in the same order; true: as the
// transpose of a matrix; nothing: it does not.
std::optional<bool> HoldsTransposed(const Value& a, const Value& b);

// Pairs of a table and the weight of a last layer (MatMul or Gemm) that hold
// the same matrix, not counting matrices of a single number. Both are among
// `weights`; `tables` has the names of the weights that lookups read. A tensor
// is second at most once, and first only if it is never second. Equal numbers
// tie nothing else: new LoRA weights, copied layers and experts are equal by
// chance.
std::vector<Tie> FindTies(const Graph& graph,
                          const std::vector<Value*>& weights,
                          const std::set<std::string>& tables);

// The first replaces the second: readers of the second read the first, or the
// first's Transpose under the second's name.
void Apply(Graph& graph, const Tie& tie);

}  // namespace onnx_fp8
