// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// A folder for this process alone, in $TMPDIR; removed when the process ends.
const std::string& ScratchFolder();

// Writes `bytes` to a file of the scratch folder and returns its path.
std::string ScratchFile(const std::string& name, std::string_view bytes);

// Reads every byte, so that a sanitizer sees it.
void Touch(const Tensor& tensor);
void Touch(const TensorMap& tensors);

// True if the elements are at most `limit`; does not overflow. For tensors that
// a target should not allocate if they are larger.
bool IsSmall(const Shape& shape, int64_t limit);

}  // namespace onnx_fp8
