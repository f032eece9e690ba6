// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// A folder of this process alone, in $TMPDIR; gone when the process ends.
const std::string& ScratchFolder();

// Writes `bytes` to a file of the scratch folder and returns its path.
std::string ScratchFile(const std::string& name, std::string_view bytes);

// Reads every byte, as a sanitizer must see it.
void Touch(const Tensor& tensor);
void Touch(const TensorMap& tensors);

// At most `limit` elements in all, without overflow. For what a target would
// rather not allocate.
bool IsSmall(const Shape& shape, int64_t limit);

}  // namespace onnx_fp8
