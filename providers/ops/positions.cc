// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/positions.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {

OneHotSizes OneHotSizesOf(const KernelContext& ctx) {
  const Tensor &indices = Operand(ctx, 0), &values = Operand(ctx, 2);
  Check(Operand(ctx, 1).size() == 1 && values.size() == 2, "[", ctx.Where(),
        "] expected one depth and two values, got shapes ",
        ToString(ctx.In(1).shape()), " and ", ToString(values.shape()));
  int64_t depth = IntAt(ConvertTo(ctx.In(1), DType::kInt64), 0);
  Check(depth >= 0, "[", ctx.Where(), "] expected a depth from 0 on, got ",
        depth);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", -1), indices.rank() + 1);
  Shape y = indices.shape();
  y.insert(y.begin() + axis, depth);
  return {depth, ViewAlong(y, axis).inner, y};
}

int64_t DiagonalOf(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() >= 2, "[", ctx.Where(), "] expected two axes at least, got ",
        ToString(x.shape()));
  if (!ctx.HasIn(1)) return 0;
  return std::clamp(IntIn(ctx, 1), -x.dim(-2), x.dim(-1));
}

TopKSizes TopKSizesOf(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", -1), x.rank());
  int64_t k = IntIn(ctx, 1);
  Check(k >= 0 && k <= x.dim(axis), "[", ctx.Where(), "] expected k in 0…",
        x.dim(axis), ", got ", k);
  Shape y = x.shape();
  y[static_cast<size_t>(axis)] = k;
  return {k, ViewAlong(x.shape(), axis), y};
}

}  // namespace onnx_fp8
