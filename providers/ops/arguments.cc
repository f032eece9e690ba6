// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/arguments.h"

#include <algorithm>
#include <cstring>

namespace onnx_fp8 {
namespace {

// The names as "a, b or c".
std::string Listed(std::initializer_list<const char*> names) {
  std::string all;
  size_t left = names.size();
  for (const char* name : names) {
    all += name;
    if (--left > 0) all += left == 1 ? " or " : ", ";
  }
  return all;
}

}  // namespace

void CheckOperand(const KernelContext& ctx, size_t i, DType dtype,
                  const Shape& shape) {
  const Tensor& x = Operand(ctx, i);
  bool narrow = ctx.NarrowIn(i) != DType::kUndefined;
  DType computed = narrow ? DType::kFloat : x.dtype();
  Check(computed == dtype && x.shape() == shape, "[", ctx.Where(),
        "] expected operand ", i, " to be ", Name(dtype), ToString(shape),
        ", got ", Name(x.dtype()), ToString(x.shape()));
}

void CheckSameDType(const KernelContext& ctx, const Tensor& a,
                    const Tensor& b) {
  Check(a.dtype() == b.dtype(), "[", ctx.Where(),
        "] expected operands of one dtype, got ", Name(a.dtype()), " and ",
        Name(b.dtype()));
}

double NumberIn(const KernelContext& ctx, size_t i) {
  const Tensor& x = Operand(ctx, i);
  Check(x.size() == 1, "[", ctx.Where(), "] expected one number as operand ", i,
        ", got shape ", ToString(x.shape()));
  return DoubleAt(x, 0);
}

int64_t IntIn(const KernelContext& ctx, size_t i) {
  const Tensor& x = Operand(ctx, i);
  Check(x.size() == 1 && IsInteger(x.dtype()), "[", ctx.Where(),
        "] expected one integer as operand ", i, ", got ", Name(x.dtype()),
        ToString(x.shape()));
  return IntAt(x, 0);
}

void CheckIndexType(const KernelContext& ctx, size_t i) {
  DType dtype = Operand(ctx, i).dtype();
  Check(dtype == DType::kInt64 || dtype == DType::kInt32, "[", ctx.Where(),
        "] expected int32 or int64 in operand ", i, ", got ", Name(dtype));
}

std::vector<int64_t> IntsIn(const KernelContext& ctx, size_t i) {
  CheckIndexType(ctx, i);
  Check(ctx.In(i).rank() <= 1, "[", ctx.Where(),
        "] expected a list of numbers as operand ", i, ", got shape ",
        ToString(ctx.In(i).shape()));
  return ToInts(ctx.In(i));
}

std::vector<int64_t> IndicesIn(const KernelContext& ctx, size_t i,
                               int64_t size) {
  CheckIndexType(ctx, i);
  const Tensor& x = ctx.In(i);
  std::vector<int64_t> indices(static_cast<size_t>(x.size()));
  if (x.dtype() == DType::kInt64) {
    std::ranges::copy(x.values<int64_t>(), indices.begin());
  } else {
    std::ranges::copy(x.values<int32_t>(), indices.begin());
  }
  for (int64_t& index : indices) index = IndexInto(ctx, index, size);
  return indices;
}

std::vector<int64_t> AxesIn(const KernelContext& ctx, std::vector<int64_t> axes,
                            int64_t rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& axis : axes) {
    axis = AxisIn(ctx, axis, rank);
    Check(!seen[static_cast<size_t>(axis)], "[", ctx.Where(),
          "] expected different axes, got ", axis, " twice");
    seen[static_cast<size_t>(axis)] = true;
  }
  return axes;
}

void CheckSizes(const KernelContext& ctx, const Shape& shape) {
  for (int64_t size : shape) {
    Check(size >= 0, "[", ctx.Where(), "] expected sizes, got ", size);
  }
}

DType DTypeIn(const KernelContext& ctx, const char* key, DType otherwise) {
  auto dtype =
      static_cast<DType>(ctx.Int(key, static_cast<int64_t>(otherwise)));
  Check(ByteSize(dtype) > 0, "[", ctx.Where(), "] expected a numeric ", key,
        ", got ", static_cast<int64_t>(dtype));
  return dtype;
}

size_t PlaceOfChoice(const KernelContext& ctx, const char* key,
                     const char* otherwise,
                     std::initializer_list<const char*> names) {
  std::string text = ctx.String(key, otherwise);
  const auto* found = std::ranges::find(names, text);
  Check(found != names.end(), "[", ctx.Where(), "] expected ", key, " ",
        Listed(names), ", got ", text);
  return static_cast<size_t>(found - names.begin());
}

Tensor Result(KernelContext& ctx, size_t i, DType dtype, const Shape& shape) {
  if (ctx.HasOut(i)) return ctx.Out(i, dtype, shape);
  return Tensor::Allocate(dtype, shape);
}

void CopyBytes(const Tensor& from, Tensor& to) {
  if (from.bytes() > 0 && !to.SharesDataWith(from)) {
    std::memcpy(to.raw(), from.raw(), from.bytes());
  }
}

void SetResult(KernelContext& ctx, size_t i, const Tensor& value) {
  if (ctx.HasOut(i)) CopyBytes(value, ctx.Out(i, value.dtype(), value.shape()));
}

}  // namespace onnx_fp8
