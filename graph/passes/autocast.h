// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_set>

#include "graph/graph.h"

namespace onnx_fp8 {

// Where something else than a node's op decides what is rounded.
struct RoundingExceptions {
  // These round their operands, but single numbers, and their results.
  std::unordered_set<const Node*> narrow;
  // These results stay floats; who reads them may round them.
  std::unordered_set<const Value*> exact;
  // These stay floats for all who read them, too.
  std::unordered_set<const Value*> inner;
};

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
void Autocast(Graph& graph, DType dtype,
              const RoundingExceptions& exceptions = {});

}  // namespace onnx_fp8
