// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Brings every product with a 2-D weight to one form, a 2-D Gemm, so that
// autodiff gives three 2-D Gemms and the FP8 rewrite sees no other products:
//
//   y = MatMul(x (…,K), Transpose(W (N,K))) [+ b (N)]
//   → y = Reshape(Gemm<transB=1>(Reshape(x, (M,K)), W[, b]), (…,N))
//
// A weight on the left of an activation of rank > 2 moves to the right, between
// two Transposes. Transposes of weights become flags. REQUIRES: concrete
// shapes, roles set.
void NormalizeLinear(Graph& graph);

}  // namespace onnx_fp8
