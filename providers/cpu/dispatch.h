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

// fn.operator()<T>() with the C++ type of `dtype`; one function per set of
// types that a kernel supports. Errors: another dtype; `where` names the node.
template <typename Where, typename Fn>
void DispatchFloat(DType dtype, const Where& where, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
      return fn.template operator()<float>();
    case DType::kDouble:
      return fn.template operator()<double>();
    default:
      Fail("[", where, "] expected float or double, got ", Name(dtype));
  }
}

template <typename Where, typename Fn>
void DispatchNumeric(DType dtype, const Where& where, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
      return fn.template operator()<float>();
    case DType::kDouble:
      return fn.template operator()<double>();
    case DType::kInt64:
      return fn.template operator()<int64_t>();
    case DType::kInt32:
      return fn.template operator()<int32_t>();
    case DType::kInt16:
      return fn.template operator()<int16_t>();
    case DType::kInt8:
      return fn.template operator()<int8_t>();
    case DType::kUInt64:
      return fn.template operator()<uint64_t>();
    case DType::kUInt32:
      return fn.template operator()<uint32_t>();
    case DType::kUInt16:
      return fn.template operator()<uint16_t>();
    case DType::kUInt8:
      return fn.template operator()<uint8_t>();
    default:
      Fail("[", where, "] expected a numeric dtype, got ", Name(dtype));
  }
}

// For results that do not depend on the width of integers: float, double, int64
// or uint64. WideInteger makes one of these of every numeric dtype.
template <typename Where, typename Fn>
void DispatchWide(DType dtype, const Where& where, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
      return fn.template operator()<float>();
    case DType::kDouble:
      return fn.template operator()<double>();
    case DType::kInt64:
      return fn.template operator()<int64_t>();
    case DType::kUInt64:
      return fn.template operator()<uint64_t>();
    default:
      Fail("[", where, "] expected a numeric dtype, got ", Name(dtype));
  }
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
