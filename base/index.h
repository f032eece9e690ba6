// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// Steps and values of a plan are numbered by int; -1: none.
inline size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace onnx_fp8
