// SPDX-License-Identifier: Apache-2.0
//
// Small questions that passes ask when they look for a pattern.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// The number in a float constant of one element.
std::optional<double> NumberIn(const Value* value);

// True if it is that number, but for its rounding to float.
bool IsNumber(const Value* value, double number);

// One node reads it, once, and it is no graph output.
bool IsReadOnce(const Graph& graph, const Value* value);

// The one node that reads it, if it is such an op of ONNX; else null.
Node* OnlyReader(const Graph& graph, const Value* value, const char* op);

// The operand of a two-operand node beside `one`. REQUIRES: it reads `one`.
Value* OtherOperand(const Node& node, const Value* one);

// The factor of a Mul or Div by a number, and what it multiplies.
std::optional<std::pair<double, Value*>> FactorOf(const Node& node);

// x with its axes permuted; a Transpose that x comes from is made one with it,
// also one between two Reshapes that join and split the first two axes of four.
Value* Permuted(Builder& b, Value* x, std::vector<int64_t> perm);

// x (B,H,T,D) as (B,T,H·D): heads beside each other, as linear layers have
// them.
Value* HeadsLast(Builder& b, Value* x);

// Values that no gradient is ever wanted of: they depend on nothing trained and
// on no input of floats. A graph that changes keeps its answers.
class FixedValues {
 public:
  explicit FixedValues(const Graph& graph) : graph_(graph) {}
  bool Has(const Value* value);

 private:
  const Graph& graph_;
  std::map<const Value*, bool> known_;
};

// `value` takes the place and the name of node's first output; the node goes.
void ReplaceWith(Graph& graph, Node& node, Value* value);

}  // namespace onnx_fp8
