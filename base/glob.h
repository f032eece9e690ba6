// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// fnmatch without flags: * and ? match dots and slashes too.
bool MatchesGlob(const std::string& pattern, const std::string& name);

}  // namespace onnx_fp8
