// SPDX-License-Identifier: Apache-2.0
//
// Values that depend only on attributes and shapes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/parallel.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/register.h"
#include "providers/cpu/strided.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

void Constant(KernelContext& ctx) {
  if (ctx.Has("value")) {
    const Tensor* value = ctx.node().TensorAttribute("value");
    Check(value->defined() && ByteSize(value->dtype()) > 0, "[", ctx.Where(),
          "] expected a numeric value, got ", Name(value->dtype()));
    return SetResult(ctx, 0, *value);
  }
  if (ctx.Has("value_float")) {
    return SetResult(ctx, 0, Tensor::Scalar(ctx.Float("value_float", 0)));
  }
  if (ctx.Has("value_int")) {
    return SetResult(ctx, 0, Tensor::Scalar(ctx.Int("value_int", 0)));
  }
  if (ctx.Has("value_floats")) {
    std::vector<float> values = ctx.node().Floats("value_floats");
    return SetResult(
        ctx, 0, Tensor::From({static_cast<int64_t>(values.size())}, values));
  }
  if (ctx.Has("value_ints"))
    return SetResult(ctx, 0, Tensor::Ints(ctx.Ints("value_ints")));
  Fail("[", ctx.Where(), "] expected a value, value_float(s) or value_int(s), ",
       "got none of them");
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
  FillElements(y.raw(), y.size(), ByteSize(y.dtype()), value->raw());
}

void ShapeOf(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto clamp = [&](int64_t axis) {
    if (axis < 0) axis += x.rank();
    return std::clamp<int64_t>(axis, 0, x.rank());
  };
  int64_t start = clamp(ctx.Int("start", 0));
  int64_t end = std::max(start, clamp(ctx.Int("end", x.rank())));
  SetResult(ctx, 0,
            Tensor::Ints({x.shape().begin() + start, x.shape().begin() + end}));
}

void Size(KernelContext& ctx) {
  SetResult(ctx, 0, Tensor::Scalar(Operand(ctx, 0).size()));
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

void Range(KernelContext& ctx) {
  for (size_t i = 0; i < 3; ++i) {
    CheckSameDType(ctx, Operand(ctx, 0), Operand(ctx, i));
    Check(ctx.In(i).size() == 1, "[", ctx.Where(), "] expected one number as ",
          "operand ", i, ", got shape ", ToString(ctx.In(i).shape()));
  }
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
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() == 2, "[", ctx.Where(), "] expected two axes, got shape ",
        ToString(x.shape()));
  DType dtype = DTypeIn(ctx, "dtype", x.dtype());
  Tensor& y = ctx.Out(0, dtype, x.shape());
  if (y.size() == 0) return;
  std::memset(y.raw(), 0, y.bytes());
  Tensor one = ConvertTo(Tensor::Scalar(1.0f), dtype);
  int64_t rows = y.dim(0), columns = y.dim(1);
  int64_t k = std::clamp(ctx.Int("k", 0), -rows, columns);
  int64_t begin = std::max<int64_t>(-k, 0), end = std::min(rows, columns - k);
  size_t width = ByteSize(dtype);
  for (int64_t i = begin; i < end; ++i) {
    std::memcpy(AtElement(y.raw(), i * columns + i + k, width), one.raw(),
                width);
  }
}

}  // namespace

void RegisterConstant(KernelRegistry& r) {
  r.Add("Constant", Constant);
  r.Add("ConstantOfShape", ConstantOfShape, {.host_inputs = {0}});
  r.Add("Shape", ShapeOf);
  r.Add("Size", Size);
  r.Add("Range", Widened<Range>, {.host_inputs = {0, 1, 2}});
  r.Add("EyeLike", EyeLike);
}

}  // namespace onnx_fp8
