// SPDX-License-Identifier: Apache-2.0
//
// Values that depend only on attributes, shapes and operands of the host.
// EyeLike writes its diagonal once more.
#include "providers/cuda/core/check.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/ops/fill.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/constant_values.h"

namespace onnx_fp8::cuda {
namespace {

// Sets result i to a value of the host, unless nobody reads it. Large values
// are initializers.
void CopyFromHost(KernelContext& ctx, size_t i, const Tensor& value) {
  if (!ctx.HasOut(i)) return;
  Tensor& y = ctx.Out(i, value.dtype(), value.shape());
  WriteBytes(ctx, value.raw(), y.bytes(), y.raw());
}

void Constant(KernelContext& ctx) { CopyFromHost(ctx, 0, ConstantValue(ctx)); }

void ShapeOf(KernelContext& ctx) { CopyFromHost(ctx, 0, ShapeValue(ctx)); }

void Size(KernelContext& ctx) {
  CopyFromHost(ctx, 0, Tensor::Scalar(Operand(ctx, 0).size()));
}

void ConstantOfShape(KernelContext& ctx) {
  Shape shape = IntsIn(ctx, 0);
  CheckSizes(ctx, shape);
  const Tensor element = FillingElement(ctx);
  Tensor& y = ctx.Out(0, element.dtype(), shape);
  FillWith(ctx, element.raw(), ByteSize(y.dtype()),
           static_cast<int64_t>(y.bytes()), y.raw());
}

template <typename T>
void RangeOf(KernelContext& ctx) {
  T start = *ctx.In(0).data<T>(), delta = *ctx.In(2).data<T>();
  int64_t n = RangeCount(ctx, start, *ctx.In(1).data<T>(), delta);
  Tensor& y = ctx.Out(0, DTypeOf<T>(), {n});
  FillRange(ctx, start, delta, n, static_cast<T*>(y.raw()));
}

void Range(KernelContext& ctx) {
  CheckRangeOperands(ctx);
  switch (ctx.In(0).dtype()) {
    case DType::kFloat:
      return RangeOf<float>(ctx);
    case DType::kDouble:
      return RangeOf<double>(ctx);
    case DType::kInt64:
      return RangeOf<int64_t>(ctx);
    case DType::kInt32:
      return RangeOf<int32_t>(ctx);
    case DType::kInt16:
      return RangeOf<int16_t>(ctx);
    default:
      Fail("[", ctx.Where(),
           "] expected float, double, int16, int32 or int64, got ",
           Name(ctx.In(0).dtype()));
  }
}

void EyeLike(KernelContext& ctx) {
  const Diagonal ones = EyeDiagonal(ctx);
  DType dtype = DTypeIn(ctx, "dtype", ctx.In(0).dtype());
  Tensor& y = ctx.Out(0, dtype, ctx.In(0).shape());
  if (y.size() == 0) return;
  ONNX_FP8_CUDA(cudaMemsetAsync(y.raw(), 0, y.bytes(), QueueOf(ctx).stream()));
  if (ones.count == 0) return;
  Tensor one = ConvertTo(Tensor::Scalar(1.0f), dtype);
  FillEvery(ctx, one.raw(), ByteSize(dtype), ones.first, ones.count,
            ones.stride, y.raw());
}

}  // namespace

void RegisterConstant(KernelRegistry& r) {
  r.Add("Constant", Constant);
  r.Add("ConstantOfShape", ConstantOfShape);
  r.Add("Shape", ShapeOf);
  r.Add("Size", Size);
  r.Add("Range", Range);
  r.Add("EyeLike", EyeLike);
}

}  // namespace onnx_fp8::cuda
