// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// softmax(scale · q kᵀ + mask) v, as exporters write it, becomes one of our
// Attention ops (graph/schemas/attention.cc). Covered are scalar factors at the
// scores, q or k; masks by Add or Where that depend on nothing that is trained
// or differentiated, a constant lower triangle as `causal`; heads of k and v
// that are repeated for several of q. Other uses of what lies between leave it
// as it is, so does a Dropout of the probabilities. Results differ by the
// rounding of sums. REQUIRES: concrete shapes.
void FuseAttention(Graph& graph);

}  // namespace onnx_fp8
