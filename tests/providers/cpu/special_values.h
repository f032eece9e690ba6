// SPDX-License-Identifier: Apache-2.0
//
// Special values of float.
#pragma once

#include <limits>

namespace onnx_fp8 {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace onnx_fp8
