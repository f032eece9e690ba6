// SPDX-License-Identifier: Apache-2.0
//
// Small questions that passes ask when they search for a pattern.
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

// True if it is that number, except for rounding to float.
bool IsNumber(const Value* value, double number);

// True if exactly one node reads it, once, and it is no graph output.
bool IsReadOnce(const Graph& graph, const Value* value);

// The only node that reads it, if that is ONNX's op `op`; else null.
Node* OnlyReader(const Graph& graph, const Value* value, const char* op);

// The other operand of a two-operand node. REQUIRES: it reads `one`.
Value* OtherOperand(const Node& node, const Value* one);

// The factor of a Mul or Div by a number, and the other operand.
std::optional<std::pair<double, Value*>> FactorOf(const Node& node);

// x with its axes permuted. If x comes from a Transpose, the two become one,
// also if the Transpose lies between two Reshapes that join and split the first
// two of four axes.
Value* Permuted(Builder& b, Value* x, std::vector<int64_t> perm);

// x (B,H,T,D) as (B,T,H·D): heads beside each other, as in linear layers.
Value* HeadsLast(Builder& b, Value* x);

// Values whose gradient is never needed: they depend on nothing trained and on
// no float input. The answers stay valid while a graph changes.
class FixedValues {
 public:
  explicit FixedValues(const Graph& graph) : graph_(graph) {}
  bool Has(const Value* value);

 private:
  const Graph& graph_;
  std::map<const Value*, bool> known_;
};

// Makes `value` the node's first output, with its name; removes the node.
void ReplaceWith(Graph& graph, Node& node, Value* value);

}  // namespace onnx_fp8
