// SPDX-License-Identifier: Apache-2.0
//
// The same elements under another shape. A plan makes the result an alias of
// the operand; these kernels copy for callers without a plan.
#include "providers/cpu/strided.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

void CopyAs(KernelContext& ctx, const Shape& shape) {
  const Tensor& x = Operand(ctx, 0);
  Check(NumElements(shape) == x.size(), "[", ctx.Where(), "] expected ",
        x.size(), " elements, got shape ", ToString(shape));
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0 || y.SharesDataWith(x)) return;
  int64_t count = x.size(), one = 1;
  CopyStrided({&count, 1}, ByteSize(x.dtype()), x.raw(), {&one, 1}, y.raw(),
              {&one, 1});
}

void Reshape(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Shape shape = IntsIn(ctx, 1);
  bool allow_zero = ctx.Int("allowzero", 0) != 0;
  size_t open = shape.size();
  int64_t known = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allow_zero) {
      Check(i < x.shape().size(), "[", ctx.Where(), "] expected an axis ", i,
            " to keep, got shape ", ToString(x.shape()));
      shape[i] = x.shape()[i];
    }
    if (shape[i] == -1 && open == shape.size()) {
      open = i;
      continue;
    }
    Check(shape[i] >= 0, "[", ctx.Where(),
          "] expected sizes and at most one -1, got ", shape[i]);
    Check(!__builtin_mul_overflow(known, shape[i], &known), "[", ctx.Where(),
          "] expected ", x.size(), " elements, got more than 2^63");
  }
  if (open < shape.size()) {
    Check(known > 0 && x.size() % known == 0, "[", ctx.Where(), "] expected ",
          x.size(), " elements, got a multiple of ", known);
    shape[open] = x.size() / known;
  }
  CopyAs(ctx, shape);
}

void Flatten(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = ctx.Int("axis", 1);
  Check(axis >= -x.rank() && axis <= x.rank(), "[", ctx.Where(),
        "] expected an axis in ", -x.rank(), "…", x.rank(), ", got ", axis);
  if (axis < 0) axis += x.rank();
  std::span<const int64_t> shape = x.shape();
  auto split = static_cast<size_t>(axis);
  CopyAs(ctx,
         {NumElements(shape.first(split)), NumElements(shape.subspan(split))});
}

void Squeeze(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  std::vector<bool> drop(x.shape().size(), false);
  if (ctx.HasIn(1)) {
    for (int64_t axis : AxesIn(ctx, IntsIn(ctx, 1), x.rank())) {
      Check(x.dim(axis) == 1, "[", ctx.Where(), "] expected size 1 in axis ",
            axis, ", got ", x.dim(axis));
      drop[static_cast<size_t>(axis)] = true;
    }
  } else {
    for (size_t i = 0; i < drop.size(); ++i) drop[i] = x.shape()[i] == 1;
  }
  Shape shape;
  for (size_t i = 0; i < drop.size(); ++i) {
    if (!drop[i]) shape.push_back(x.shape()[i]);
  }
  CopyAs(ctx, shape);
}

void Unsqueeze(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  std::vector<int64_t> axes = IntsIn(ctx, 1);
  int64_t rank = x.rank() + static_cast<int64_t>(axes.size());
  Shape shape(static_cast<size_t>(rank), -1);
  for (int64_t axis : AxesIn(ctx, axes, rank)) {
    shape[static_cast<size_t>(axis)] = 1;
  }
  size_t next = 0;
  for (int64_t& size : shape) {
    if (size < 0) size = x.shape()[next++];
  }
  CopyAs(ctx, shape);
}

}  // namespace

void RegisterReshape(KernelRegistry& r) {
  r.Add("Reshape", Reshape, {.view = true});
  r.Add("Flatten", Flatten, {.view = true});
  r.Add("Squeeze", Squeeze, {.view = true});
  r.Add("Unsqueeze", Unsqueeze, {.view = true});
}

}  // namespace onnx_fp8
