// SPDX-License-Identifier: Apache-2.0
//
// Small questions that passes ask when they look for a pattern.
#pragma once

#include <optional>
#include <utility>

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

// `value` takes the place and the name of node's first output; the node goes.
void ReplaceWith(Graph& graph, Node& node, Value* value);

}  // namespace onnx_fp8
