// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Fuses activations that exporters write out into one op each:
// - x (1 + erf(x/√2)) / 2, in any order of its factors: Gelu;
// - x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2: Gelu<approximate="tanh">;
// - x sigmoid(x): our Silu; times another tensor of its shape: our SwiGLU.
// If other nodes read a value in between, nothing is fused. Results differ by
// the rounding of the parts.
void FuseActivations(Graph& graph);

}  // namespace onnx_fp8
