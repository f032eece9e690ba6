// SPDX-License-Identifier: Apache-2.0
//
// Small questions that passes ask when they search for a pattern.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
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

// The factor of a Mul or Div by a number, and the other operand, which has the
// result's shape.
std::optional<std::pair<double, Value*>> FactorOf(const Node& node);

// x with its axes permuted. If x comes from Transposes, all of them become one,
// also if a Transpose lies between two Reshapes that join and split the first
// two of four axes.
Value* Permuted(Builder& b, Value* x, std::vector<int64_t> perm);

// x (B,H,T,D) as (B,T,H·D): heads beside each other, as in linear layers.
Value* HeadsLast(Builder& b, Value* x);

// The factor x of a square, which is x · x or Pow(x, 2). Null: the value is no
// square.
Value* SquareOf(const Value* square);

// The result of Where(IsNaN(p), 0, p), which PyTorch's exporter writes behind a
// softmax with a mask: a row whose mask hides every column becomes 0. Returns p
// itself if no such Where reads p.
Value* WithoutNaN(const Graph& graph, Value* p);

// Values whose gradient is never needed: they depend on nothing trained and on
// no float input. The answers are those for the graph at first; a value that
// takes another one's name takes its answer, and other new values are not
// fixed. REQUIRES: every node comes after its operands.
class FixedValues {
 public:
  explicit FixedValues(const Graph& graph);
  bool Has(const Value* value) const { return names_.contains(value->name); }

 private:
  std::unordered_set<std::string> names_;
};

// Makes `value` the node's first output, with its name; removes the node.
void ReplaceWith(Graph& graph, Node& node, Value* value);

}  // namespace onnx_fp8
