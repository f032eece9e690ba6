// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// Writes to standard error, once, that something is not tested here and why, as
// "left out: …". `./dev test` repeats these lines at its end.
void LeaveOut(const std::string& what);

}  // namespace onnx_fp8
