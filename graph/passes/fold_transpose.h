// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Gets rid of Transposes; what they compute stays the same bit for bit:
// - a Transpose of a Transpose becomes one, of the first one's input;
// - one that moves nothing vanishes (Identity if it is a graph output);
// - a Gemm reads the input of a Transpose of its A or B, and transA or transB
//   flips;
// - Transposes that nothing reads any more are removed.
// Data of initializers is never touched. REQUIRES: nodes in topological order.
void FoldTranspose(Graph& graph);

}  // namespace onnx_fp8
