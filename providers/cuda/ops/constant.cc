// SPDX-License-Identifier: Apache-2.0
//
// Values that depend only on attributes, shapes and operands of the host.
// EyeLike writes its diagonal once more.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "providers/cuda/core/check.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/ops/fill.h"
#include "providers/cuda/register.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

// Sets result i to a value of the host, unless nobody reads it. Large values
// are initializers.
void CopyFromHost(KernelContext& ctx, size_t i, const Tensor& value) {
  if (!ctx.HasOut(i)) return;
  Tensor& y = ctx.Out(i, value.dtype(), value.shape());
  WriteBytes(ctx, value.raw(), y.bytes(), y.raw());
}

void Constant(KernelContext& ctx) {
  if (ctx.Has("value")) {
    const Tensor* value = ctx.node().TensorAttribute("value");
    Check(value->defined() && ByteSize(value->dtype()) > 0, "[", ctx.Where(),
          "] expected a numeric value, got ", Name(value->dtype()));
    return CopyFromHost(ctx, 0, *value);
  }
  if (ctx.Has("value_float")) {
    return CopyFromHost(ctx, 0, Tensor::Scalar(ctx.Float("value_float", 0)));
  }
  if (ctx.Has("value_int")) {
    return CopyFromHost(ctx, 0, Tensor::Scalar(ctx.Int("value_int", 0)));
  }
  if (ctx.Has("value_floats")) {
    std::vector<float> values = ctx.node().Floats("value_floats");
    return CopyFromHost(
        ctx, 0, Tensor::From({static_cast<int64_t>(values.size())}, values));
  }
  if (ctx.Has("value_ints")) {
    return CopyFromHost(ctx, 0, Tensor::Ints(ctx.Ints("value_ints")));
  }
  Fail("[", ctx.Where(), "] expected a value, value_float(s) or value_int(s), ",
       "got none of them");
}

void ShapeOf(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto clamp = [&](int64_t axis) {
    if (axis < 0) axis += x.rank();
    return std::clamp<int64_t>(axis, 0, x.rank());
  };
  int64_t start = clamp(ctx.Int("start", 0));
  int64_t end = std::max(start, clamp(ctx.Int("end", x.rank())));
  CopyFromHost(
      ctx, 0,
      Tensor::Ints({x.shape().begin() + start, x.shape().begin() + end}));
}

void Size(KernelContext& ctx) {
  CopyFromHost(ctx, 0, Tensor::Scalar(Operand(ctx, 0).size()));
}

void ConstantOfShape(KernelContext& ctx) {
  Shape shape = IntsIn(ctx, 0);
  CheckSizes(ctx, shape);
  Tensor zero = Tensor::Scalar(0.0f);
  const Tensor* value = ctx.node().TensorAttribute("value");
  if (!value) value = &zero;
  Check(value->size() == 1 && ByteSize(value->dtype()) > 0, "[", ctx.Where(),
        "] expected one number as value, got ", Name(value->dtype()),
        ToString(value->shape()));
  Tensor& y = ctx.Out(0, value->dtype(), shape);
  FillWith(ctx, value->raw(), ByteSize(y.dtype()),
           static_cast<int64_t>(y.bytes()), y.raw());
}

// Number of elements of start, start + delta, … before limit.
template <typename T>
int64_t RangeCount(const KernelContext& ctx, T start, T limit, T delta) {
  Check(delta != 0, "[", ctx.Where(), "] expected a step, got 0");
  if constexpr (std::is_floating_point_v<T>) {
    double count = std::ceil((static_cast<double>(limit) - start) / delta);
    Check(count < 0x1p60, "[", ctx.Where(),
          "] expected a range that ends, got ", start, " to ", limit, " by ",
          delta);
    return count > 0 ? static_cast<int64_t>(count) : 0;
  } else {
    __int128 distance = static_cast<__int128>(limit) - start;
    __int128 step = delta;
    if ((distance > 0) != (step > 0) || distance == 0) return 0;
    __int128 count = (distance + step - (step > 0 ? 1 : -1)) / step;
    Check(count < (__int128{1} << 60), "[", ctx.Where(),
          "] expected a range that fits into memory, got ", +start, " to ",
          +limit, " by ", +delta);
    return static_cast<int64_t>(count);
  }
}

template <typename T>
void RangeOf(KernelContext& ctx) {
  T start = *ctx.In(0).data<T>(), delta = *ctx.In(2).data<T>();
  int64_t n = RangeCount(ctx, start, *ctx.In(1).data<T>(), delta);
  Tensor& y = ctx.Out(0, DTypeOf<T>(), {n});
  FillRange(ctx, start, delta, n, static_cast<T*>(y.raw()));
}

void Range(KernelContext& ctx) {
  for (size_t i = 0; i < 3; ++i) {
    CheckSameDType(ctx, Operand(ctx, 0), Operand(ctx, i));
    Check(ctx.In(i).size() == 1, "[", ctx.Where(), "] expected one number as ",
          "operand ", i, ", got shape ", ToString(ctx.In(i).shape()));
  }
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
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() == 2, "[", ctx.Where(), "] expected two axes, got shape ",
        ToString(x.shape()));
  DType dtype = DTypeIn(ctx, "dtype", x.dtype());
  Tensor& y = ctx.Out(0, dtype, x.shape());
  if (y.size() == 0) return;
  ONNX_FP8_CUDA(cudaMemsetAsync(y.raw(), 0, y.bytes(), QueueOf(ctx).stream()));
  int64_t rows = y.dim(0), columns = y.dim(1);
  int64_t k = std::clamp(ctx.Int("k", 0), -rows, columns);
  int64_t begin = std::max<int64_t>(-k, 0), end = std::min(rows, columns - k);
  if (begin >= end) return;
  Tensor one = ConvertTo(Tensor::Scalar(1.0f), dtype);
  FillEvery(ctx, one.raw(), ByteSize(dtype), begin * (columns + 1) + k,
            end - begin, columns + 1, y.raw());
}

}  // namespace

void RegisterConstant(KernelRegistry& r) {
  r.Add("Constant", Constant);
  r.Add("ConstantOfShape", ConstantOfShape, {.host_inputs = {0}});
  r.Add("Shape", ShapeOf);
  r.Add("Size", Size);
  r.Add("Range", Range, {.host_inputs = {0, 1, 2}});
  r.Add("EyeLike", EyeLike);
}

}  // namespace onnx_fp8::cuda
