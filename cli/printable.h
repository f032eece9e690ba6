// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// A message that may quote any bytes of a file, made safe for a terminal:
// control characters and bytes that are not UTF-8 appear as "\x1b"; a very long
// message ends in "…".
std::string Printable(const std::string& message);

}  // namespace onnx_fp8
