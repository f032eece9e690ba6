// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Writes arrays as a .npz file, stored, not deflated. The file appears complete
// or not at all. Errors: a dtype that NumPy lacks; the disk.
void WriteNpz(const std::string& path, const TensorMap& arrays);

}  // namespace onnx_fp8
