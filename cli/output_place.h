// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// For before the work is done. Errors: the folder of the file does not exist.
void RequireFolderOf(const std::string& file);

}  // namespace onnx_fp8
