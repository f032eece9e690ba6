// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Rounds the values that PyTorch's autocast keeps in 16 bits to `dtype`
// (bfloat16 or float16), by RoundTo nodes. All nodes still compute in float;
// parameters stay as they are. docs/precision.md has the rules and their
// source:
//   - operands and results of products, convolutions and attention are rounded;
//   - results of the ops that autocast runs in float32 are not: norms, softmax,
//     losses, sums, powers, exponentials;
//   - the result of another op is rounded if all its float operands are;
//   - ops that only move elements or pick some of them keep them rounded.
// Bodies of If, Loop and Scan stay in float. REQUIRES: nodes in execution
// order; it runs before the backward is built, which rounds the gradients of
// rounded activations too.
void Autocast(Graph& graph, DType dtype);

}  // namespace onnx_fp8
