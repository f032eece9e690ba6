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

// For a graph with open axes, where nothing can be fused but activations:
// fuses these, and tells Autocast to round all else as if it were fused, as
// FusionPasses do in graphs of concrete shapes. The bias behind a product is
// added before the result is rounded; scores of attention stay floats, and its
// probabilities are rounded before they are divided by their sum; a square in a
// norm and a sum of the residual stream stay floats. REQUIRES: roles set,
// shapes as far as they are known.
FusedRoundings RoundAsFused(Graph& graph, DType dtype);

}  // namespace onnx_fp8
