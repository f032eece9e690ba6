// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// An axis whose elements lie `stride` apart; 0 if there is only one.
struct StridedAxis {
  int64_t size, stride;
  bool operator==(const StridedAxis&) const = default;
};

// A value as a part of another value's elements: element (i, j, …) is element
// first + i · axes[0].stride + j · axes[1].stride + … of `root`.
struct StridedView {
  Value* root;
  int64_t first = 0;
  std::vector<StridedAxis> axes;
};

// The view of x behind nodes that move or select elements: Identity, Transpose,
// Reshape, Flatten, Squeeze, Unsqueeze, Slice, Split, and Gather of one index.
// The root is the first value on the way to x of which x is such a part; at
// least it is x itself. REQUIRES: concrete shapes.
StridedView ViewOf(Value* x);

}  // namespace onnx_fp8
