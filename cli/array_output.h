// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Writes .npz (stored, not deflated) or .safetensors, by the extension. Errors:
// another extension; a dtype that the format lacks; the disk.
void WriteArrays(const std::string& path, const TensorMap& arrays);

// Errors: OptionError if WriteArrays does not know the extension. Call it
// before the work is done.
void RequireArrayPath(const std::string& path);

}  // namespace onnx_fp8
