// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace onnx_fp8 {

// What a person is told when `bytes` more could not be had, and what to do.
std::string OutOfMemoryText(size_t bytes);

}  // namespace onnx_fp8
