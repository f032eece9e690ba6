// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// NumPy's code of a dtype, which follows the character of the byte order.
struct NumpyType {
  std::string_view code;
  DType dtype;
};

inline constexpr NumpyType kNumpyTypes[] = {
    {"f2", DType::kFloat16}, {"f4", DType::kFloat},  {"f8", DType::kDouble},
    {"i1", DType::kInt8},    {"i2", DType::kInt16},  {"i4", DType::kInt32},
    {"i8", DType::kInt64},   {"u1", DType::kUInt8},  {"u2", DType::kUInt16},
    {"u4", DType::kUInt32},  {"u8", DType::kUInt64}, {"b1", DType::kBool},
};

}  // namespace onnx_fp8
