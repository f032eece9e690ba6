// SPDX-License-Identifier: Apache-2.0
//
// Values that depend only on attributes, shapes and operands of the host.
#pragma once

#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The value of a Constant. Errors: no number, or no value at all.
Tensor ConstantValue(const KernelContext& ctx);

// The element that fills a ConstantOfShape: float 0 if none is given. Errors:
// more than one number.
Tensor FillingElement(const KernelContext& ctx);

// The sizes that a Shape returns.
Tensor ShapeValue(const KernelContext& ctx);

// The elements of y that EyeLike sets to one: the first, the number of elements
// from each to the next, and how many there are.
struct Diagonal {
  int64_t first = 0, stride = 0, count = 0;
};
// Errors: x has another number of axes than two.
Diagonal EyeDiagonal(const KernelContext& ctx);

// Errors: operands of Range that differ in dtype, or are no single numbers.
void CheckRangeOperands(const KernelContext& ctx);

// Number of elements of start, start + delta, … before limit. Errors: a step of
// 0; a range that does not end, or not before 2^60 elements.
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

}  // namespace onnx_fp8
