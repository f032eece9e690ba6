// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The array as `dtype`: integers of any width, floats of any width, bool.
// Errors, prefixed with [where]: a float for an integer, a number that does
// not fit.
Tensor FeedAs(const Tensor& array, DType dtype, const std::string& where);

}  // namespace onnx_fp8
