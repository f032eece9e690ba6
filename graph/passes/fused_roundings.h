// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "graph/passes/autocast.h"

namespace onnx_fp8 {

struct FusedRoundings {
  RoundingExceptions exceptions;
  // Products behind a Softmax whose scores come from no known form: they are
  // rounded node by node.
  int unknown_attention = 0;
};

// An evaluation fuses ops of a graph of concrete shapes (FusionPasses). A graph
// with open axes can only have its activations fused. This function fuses
// these, and tells Autocast to round the other ops as if they were fused: a
// product is rounded after its bias is added; scores of attention stay floats;
// powers of scores are rounded before they are divided by their sum; the square
// in a norm and sums of the residual stream stay floats. REQUIRES: roles set,
// shapes as far as they are known.
FusedRoundings RoundAsFused(Graph& graph, DType dtype);

}  // namespace onnx_fp8
