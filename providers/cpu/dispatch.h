// SPDX-License-Identifier: Apache-2.0
// Selects the C++ types of a kernel by the dtypes of a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "onnx_fp8/dtype.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8 {

// fn.operator()<T>() with the type T of Ts whose dtype is `dtype`. Errors:
// there is none; the message has `where`, the node, and `expected`, the dtypes.
template <typename... Ts, typename Where, typename Fn>
void DispatchAmong(DType dtype, const Where& where, const char* expected,
                   Fn fn) {
  const bool known =
      ((DTypeOf<Ts>() == dtype && (fn.template operator()<Ts>(), true)) || ...);
  if (!known) Fail("[", where, "] expected ", expected, ", got ", Name(dtype));
}

// One function for each set of types that a kernel supports.
template <typename Where, typename Fn>
void DispatchFloat(DType dtype, const Where& where, Fn fn) {
  DispatchAmong<float, double>(dtype, where, "float or double", fn);
}

template <typename Where, typename Fn>
void DispatchNumeric(DType dtype, const Where& where, Fn fn) {
  DispatchAmong<float, double, int64_t, int32_t, int16_t, int8_t, uint64_t,
                uint32_t, uint16_t, uint8_t>(dtype, where, "a numeric dtype",
                                             fn);
}

// For results that do not depend on the width of integers: float, double, int64
// or uint64. WideInteger makes one of these of every numeric dtype.
template <typename Where, typename Fn>
void DispatchWide(DType dtype, const Where& where, Fn fn) {
  DispatchAmong<float, double, int64_t, uint64_t>(dtype, where,
                                                  "a numeric dtype", fn);
}

// x as int64 if its elements are narrower integers, otherwise x itself.
Tensor WideInteger(const Tensor& x);

// For kernels that only move elements: an unsigned type of the same width.
template <typename Where, typename Fn>
void DispatchWidth(DType dtype, const Where& where, Fn fn) {
  size_t width = ByteSize(dtype);
  Check(width > 0, "[", where, "] expected a tensor, got ", Name(dtype));
  ForWidth(width, fn);
}

// Runs `kernel` on float copies of float16 and bfloat16 operands and rounds
// float results to what the graph says, or to the operands' dtype.
void RunWidened(KernelContext& ctx, Kernel kernel);

// The kernel that accepts float16 and bfloat16 beside what kKernel accepts.
template <Kernel kKernel>
void Widened(KernelContext& ctx) {
  RunWidened(ctx, kKernel);
}

}  // namespace onnx_fp8
