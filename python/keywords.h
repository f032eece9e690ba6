// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// A message with options as keywords and commands as functions: "`dtype=fp8`
// of `inspect()`" → "`dtype="fp8"` of `onnx_fp8.inspect`".
std::string InKeywords(const std::string& message);

}  // namespace onnx_fp8
