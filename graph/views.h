// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_set>

#include "graph/graph.h"

namespace onnx_fp8 {

// Ops that move, reinterpret or round elements of their first operand (all
// operands for Concat) and compute nothing: Transpose, Reshape, Squeeze,
// Unsqueeze, Cast, Identity, Slice, Split, Concat, our RoundTo.
bool IsViewOp(const Node& node);

// Whether the graph returns the value. A graph returns its outputs and the next
// values of its state.
bool IsReturned(const Graph& graph, const Value* value);

// The values that replace state after a run.
std::unordered_set<const Value*> NewState(const Graph& graph);

// The parameter (trained or frozen) that reaches `value` through views only;
// null if there is none. If a value joins several parameters, the first.
Value* WeightBehind(Value* value);

// A matrix used as it is or transposed.
struct Matrix {
  Value* value;
  bool transposed = false;
};

// Looks through Transposes of a 2-D value.
Matrix PeelTranspose(Value* value);

// The module path that an exporter left on the node: the innermost entry of
// `pkg.torch.onnx.name_scopes`, or the folder part of a path-like node name
// ("/blocks.0/attn/MatMul" → "blocks.0.attn"); "" if there is none.
std::string ModulePath(const Node& node);

}  // namespace onnx_fp8
