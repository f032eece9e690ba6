// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
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

// Follows values back through nodes that move or select elements: Identity,
// Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Slice, Split, and Gather of
// one index. The steps to a value are followed once, however many values lie
// behind it.
class StridedViews {
 public:
  // The root is the farthest value of which x is such a view. It is x itself if
  // the last node can't be followed. REQUIRES: concrete shapes.
  StridedView Of(Value* x);
  // To be called before `x` is removed from its graph. REQUIRES: Of was called
  // for no value behind x.
  void Forget(const Value* x) { known_.erase(x); }

 private:
  // On the way to a value an axis may be none of one stride: heads of several
  // batches, for example, which a Reshape has put into one axis. So an axis is
  // a list of parts, the outermost first.
  struct Parted {
    Value* root;
    int64_t first = 0;
    std::vector<std::vector<StridedAxis>> axes;
  };

  const Parted& PartedOf(Value* x);

  std::unordered_map<const Value*, Parted> known_;
};

}  // namespace onnx_fp8
