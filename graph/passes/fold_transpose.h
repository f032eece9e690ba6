// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Removes Transposes; all results stay the same bit for bit:
// - a Transpose of a Transpose becomes one Transpose of the first one's input;
// - a Transpose that moves nothing vanishes (Identity if it is a graph output);
// - a Gemm reads the input of a Transpose of its A or B, and transA or transB
//   flips;
// - Transposes without readers are removed.
// Data of initializers is never changed. REQUIRES: nodes in topological order.
void FoldTranspose(Graph& graph);

}  // namespace onnx_fp8
