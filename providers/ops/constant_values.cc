// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/constant_values.h"

#include <algorithm>
#include <vector>

#include "providers/ops/arguments.h"

namespace onnx_fp8 {

Tensor ConstantValue(const KernelContext& ctx) {
  if (ctx.Has("value")) {
    const Tensor* value = ctx.node().TensorAttribute("value");
    Check(value->defined() && ByteSize(value->dtype()) > 0, "[", ctx.Where(),
          "] expected a numeric value, got ", Name(value->dtype()));
    return *value;
  }
  if (ctx.Has("value_float"))
    return Tensor::Scalar(ctx.Float("value_float", 0));
  if (ctx.Has("value_int")) return Tensor::Scalar(ctx.Int("value_int", 0));
  if (ctx.Has("value_floats")) {
    std::vector<float> values = ctx.node().Floats("value_floats");
    return Tensor::From({static_cast<int64_t>(values.size())}, values);
  }
  if (ctx.Has("value_ints")) return Tensor::Ints(ctx.Ints("value_ints"));
  Fail("[", ctx.Where(), "] expected a value, value_float(s) or value_int(s), ",
       "got none of them");
}

Tensor FillingElement(const KernelContext& ctx) {
  const Tensor* value = ctx.node().TensorAttribute("value");
  if (!value) return Tensor::Scalar(0.0f);
  Check(value->size() == 1 && ByteSize(value->dtype()) > 0, "[", ctx.Where(),
        "] expected one number as value, got ", Name(value->dtype()),
        ToString(value->shape()));
  return *value;
}

Tensor ShapeValue(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto clamp = [&](int64_t axis) {
    if (axis < 0) axis += x.rank();
    return std::clamp<int64_t>(axis, 0, x.rank());
  };
  int64_t start = clamp(ctx.Int("start", 0));
  int64_t end = std::max(start, clamp(ctx.Int("end", x.rank())));
  return Tensor::Ints({x.shape().begin() + start, x.shape().begin() + end});
}

Diagonal EyeDiagonal(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() == 2, "[", ctx.Where(), "] expected two axes, got shape ",
        ToString(x.shape()));
  int64_t rows = x.dim(0), columns = x.dim(1);
  int64_t k = std::clamp(ctx.Int("k", 0), -rows, columns);
  int64_t begin = std::max<int64_t>(-k, 0), end = std::min(rows, columns - k);
  return {.first = begin * (columns + 1) + k,
          .stride = columns + 1,
          .count = std::max<int64_t>(end - begin, 0)};
}

void CheckRangeOperands(const KernelContext& ctx) {
  for (size_t i = 0; i < 3; ++i) {
    CheckSameDType(ctx, Operand(ctx, 0), Operand(ctx, i));
    Check(ctx.In(i).size() == 1, "[", ctx.Where(), "] expected one number as ",
          "operand ", i, ", got shape ", ToString(ctx.In(i).shape()));
  }
}

}  // namespace onnx_fp8
