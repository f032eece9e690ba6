// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/packed_heads.h"

namespace onnx_fp8 {
namespace {

// Returns whether x (B,H,T,D) begins at element `first`, has batches `batch`
// elements apart and rows `row` elements apart, and has its heads side by side.
bool LiesAt(const StridedView& x, int64_t first, int64_t batch, int64_t row) {
  const int64_t strides[] = {batch, x.axes[3].size, row, 1};
  for (size_t i = 0; i < 4; ++i) {
    if (x.axes[i].size > 1 && x.axes[i].stride != strides[i]) return false;
  }
  return x.first == first;
}

}  // namespace

std::optional<PackedHeads> FindPackedHeads(StridedViews& views, Value* q,
                                           Value* k, Value* v) {
  StridedView a = views.Of(q), b = views.Of(k), c = views.Of(v);
  if (a.root != b.root || a.root != c.root) return std::nullopt;
  int64_t batch = q->dim(0), heads = q->dim(1), time = q->dim(2),
          depth = q->dim(3), groups = k->dim(1);
  const Shape key = {batch, groups, time, depth};
  int64_t width = (heads + 2 * groups) * depth;
  if (*k->shape != key || *v->shape != key ||
      NumElements(*a.root->shape) != batch * time * width) {
    return std::nullopt;
  }
  auto fits = [&](int64_t batch_stride, int64_t row_stride) {
    return LiesAt(a, 0, batch_stride, row_stride) &&
           LiesAt(b, heads * depth, batch_stride, row_stride) &&
           LiesAt(c, (heads + groups) * depth, batch_stride, row_stride);
  };
  if (fits(time * width, width)) {
    return PackedHeads{a.root, {batch, time, width}, {0, 1, 2}};
  }
  if (fits(width, batch * width)) {
    return PackedHeads{a.root, {time, batch, width}, {1, 0, 2}};
  }
  return std::nullopt;
}

}  // namespace onnx_fp8
