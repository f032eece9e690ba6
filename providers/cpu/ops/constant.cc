// SPDX-License-Identifier: Apache-2.0
//
// Values that depend only on attributes and shapes.
#include <cstring>
#include <type_traits>

#include "base/parallel.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/strided.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/constant_values.h"

namespace onnx_fp8 {
namespace {

void Constant(KernelContext& ctx) { SetResult(ctx, 0, ConstantValue(ctx)); }

void ConstantOfShape(KernelContext& ctx) {
  Shape shape = IntsIn(ctx, 0);
  CheckSizes(ctx, shape);
  const Tensor element = FillingElement(ctx);
  Tensor& y = ctx.Out(0, element.dtype(), shape);
  FillElements(y.raw(), y.size(), ByteSize(y.dtype()), element.raw());
}

void ShapeOf(KernelContext& ctx) { SetResult(ctx, 0, ShapeValue(ctx)); }

void Size(KernelContext& ctx) {
  SetResult(ctx, 0, Tensor::Scalar(Operand(ctx, 0).size()));
}

void Range(KernelContext& ctx) {
  CheckRangeOperands(ctx);
  DispatchNumeric(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
    T start = *ctx.In(0).data<T>(), delta = *ctx.In(2).data<T>();
    int64_t n = RangeCount(ctx, start, *ctx.In(1).data<T>(), delta);
    T* y = ctx.Out(0, DTypeOf<T>(), {n}).template data<T>();
    // Modulo 2^64: i * delta may overflow T even if start + i * delta does not.
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>(static_cast<Wide>(start) +
                            static_cast<Wide>(i) * static_cast<Wide>(delta));
    }
  });
}

void EyeLike(KernelContext& ctx) {
  const Diagonal ones = EyeDiagonal(ctx);
  DType dtype = DTypeIn(ctx, "dtype", ctx.In(0).dtype());
  Tensor& y = ctx.Out(0, dtype, ctx.In(0).shape());
  if (y.size() == 0) return;
  std::memset(y.raw(), 0, y.bytes());
  Tensor one = ConvertTo(Tensor::Scalar(1.0f), dtype);
  size_t width = ByteSize(dtype);
  for (int64_t i = 0; i < ones.count; ++i) {
    std::memcpy(AtElement(y.raw(), ones.first + i * ones.stride, width),
                one.raw(), width);
  }
}

}  // namespace

void RegisterConstant(KernelRegistry& r) {
  r.Add("Constant", Constant);
  r.Add("ConstantOfShape", ConstantOfShape);
  r.Add("Shape", ShapeOf);
  r.Add("Size", Size);
  r.Add("Range", Widened<Range>);
  r.Add("EyeLike", EyeLike);
}

}  // namespace onnx_fp8
