// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// The ReduceSum of x over all axes but the last, as the gradient of a bias is;
// it may read x under another shape (Reshape). Null if there is none. REQUIRES:
// rank 1 or more, concrete shapes.
Node* SumOfRows(const Value* x);

}  // namespace onnx_fp8
