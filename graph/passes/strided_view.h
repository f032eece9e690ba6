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

// A value that holds elements of `root`: its element (i, j, …) is root's
// element first + i · axes[0].stride + j · axes[1].stride + …
struct StridedView {
  Value* root;
  int64_t first = 0;
  std::vector<StridedAxis> axes;
};

// Follows x back through nodes that move or select elements: Identity,
// Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Slice, Split, and Gather of
// one index. The root is the farthest value of which x is such a view. It is x
// itself if the last node can't be followed. REQUIRES: concrete shapes.
StridedView ViewOf(Value* x);

}  // namespace onnx_fp8
