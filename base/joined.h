// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace onnx_fp8 {

// "a, b, c", at most `most` of them and "…".
std::string Joined(const std::vector<std::string>& words, size_t most = 20);

}  // namespace onnx_fp8
