// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/reduction.h"

#include <algorithm>

#include "base/check.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

ReductionLayout LayoutOf(const Shape& x, const std::vector<bool>& reduce,
                         bool keepdims) {
  ReductionLayout l{{}, {1, {}, {}}, {1, {}, {}}, true};
  for (size_t a = 0; a < x.size(); ++a) {
    if (!reduce[a]) l.shape.push_back(x[a]);
    if (reduce[a] && keepdims) l.shape.push_back(1);
    (reduce[a] ? l.reduced : l.kept).n *= x[a];
  }
  int64_t stride = 1;
  bool first = true;
  bool last_reduced = false;
  for (size_t a = x.size(); a-- > 0;) {
    if (x[a] == 1) continue;
    BroadcastPlan& walk = reduce[a] ? l.reduced : l.kept;
    if (first) l.inner_reduced = reduce[a];
    if (!first && last_reduced == reduce[a]) {
      walk.sizes.back() *= x[a];
    } else {
      walk.sizes.push_back(x[a]);
      walk.strides.push_back({stride});
    }
    first = false;
    last_reduced = reduce[a];
    stride *= x[a];
  }
  for (BroadcastPlan* walk : {&l.kept, &l.reduced}) {
    if (walk->sizes.empty()) {
      walk->sizes.push_back(1);
      walk->strides.push_back({0});
    }
    std::ranges::reverse(walk->sizes);
    std::ranges::reverse(walk->strides);
  }
  return l;
}

}  // namespace

ReductionLayout ReductionOf(const KernelContext& ctx, const Tensor& x) {
  std::vector<int64_t> axes = ctx.Ints("axes");
  if (ctx.HasIn(1)) {
    DType dtype = ctx.In(1).dtype();
    Check(IsInteger(dtype), "[", ctx.Where(), "] expected integer axes, got ",
          Name(dtype));
    axes = ToInts(ctx.In(1));
  }
  bool all = axes.empty() && ctx.Int("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduce(x.shape().size(), all);
  for (int64_t axis : axes) {
    Check(x.rank() > 0, "[", ctx.Where(), "] expected no axes of a scalar");
    reduce[static_cast<size_t>(AxisIn(ctx, axis, x.rank()))] = true;
  }
  return LayoutOf(x.shape(), reduce, ctx.Int("keepdims", 1) != 0);
}

}  // namespace onnx_fp8
