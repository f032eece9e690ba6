// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/arguments.h"

#include <algorithm>

namespace onnx_fp8 {
namespace {

void CheckIndexType(const KernelContext& c, size_t i) {
  DType dtype = Operand(c, i).dtype();
  Check(dtype == DType::kInt64 || dtype == DType::kInt32, "[", c.Where(),
        "] expected int32 or int64 in operand ", i, ", got ", Name(dtype));
}

}  // namespace

std::vector<int64_t> IntsIn(const KernelContext& c, size_t i) {
  CheckIndexType(c, i);
  Check(c.In(i).rank() <= 1, "[", c.Where(),
        "] expected a list of numbers as operand ", i, ", got shape ",
        ToString(c.In(i).shape()));
  return ToInts(c.In(i));
}

int64_t IntIn(const KernelContext& c, size_t i) {
  const Tensor& x = Operand(c, i);
  Check(x.size() == 1 && IsInteger(x.dtype()), "[", c.Where(),
        "] expected one integer as operand ", i, ", got ", Name(x.dtype()),
        ToString(x.shape()));
  return IntAt(x, 0);
}

std::vector<int64_t> IndicesIn(const KernelContext& c, size_t i, int64_t size) {
  CheckIndexType(c, i);
  const Tensor& x = c.In(i);
  std::vector<int64_t> indices(static_cast<size_t>(x.size()));
  if (x.dtype() == DType::kInt64) {
    std::ranges::copy(x.values<int64_t>(), indices.begin());
  } else {
    std::ranges::copy(x.values<int32_t>(), indices.begin());
  }
  for (int64_t& index : indices) {
    if (index < -size || index >= size) [[unlikely]] {
      Fail("[", c.Where(), "] expected indices in ", -size, "…", size - 1,
           ", got ", index);
    }
    if (index < 0) index += size;
  }
  return indices;
}

int64_t AxisIn(const KernelContext& c, int64_t axis, int64_t rank) {
  Check(axis >= -rank && axis < rank, "[", c.Where(), "] expected an axis of ",
        rank, " axes, got ", axis);
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> AxesIn(const KernelContext& c, std::vector<int64_t> axes,
                            int64_t rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& axis : axes) {
    axis = AxisIn(c, axis, rank);
    Check(!seen[static_cast<size_t>(axis)], "[", c.Where(),
          "] expected different axes, got ", axis, " twice");
    seen[static_cast<size_t>(axis)] = true;
  }
  return axes;
}

void CheckSameDType(const KernelContext& c, const Tensor& a, const Tensor& b) {
  Check(a.dtype() == b.dtype(), "[", c.Where(),
        "] expected operands of one dtype, got ", Name(a.dtype()), " and ",
        Name(b.dtype()));
}

}  // namespace onnx_fp8
