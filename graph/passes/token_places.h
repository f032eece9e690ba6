// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Whether the value is a weight or a constant, moved or not.
bool ComesFromWeight(const Value* value);

// Checks that tokens of rows that hold several documents meet in attention
// alone: elsewhere each stays at its place in the row. Tokens are followed from
// embeddings and from inputs (B,T,…) of floats through products with weights,
// ops by element and ops that move elements. `segments`: (B,T). REQUIRES:
// concrete shapes. Errors: a node that puts tokens at the places of others (by
// Pad, Slice or Concat), that reads tokens of two places at once, that weighs
// or normalizes along the tokens, or whose tokens meet a sum over their row.
// Tokens are lost behind a node that the walk does not know: what mixes them
// there is not found.
void RequireTokensInPlace(const Graph& graph, const Value& segments);

}  // namespace onnx_fp8
