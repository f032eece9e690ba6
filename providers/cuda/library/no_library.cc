// SPDX-License-Identifier: Apache-2.0
// For builds without cuDNN's headers.
#include "providers/cuda/library/library_name.h"

namespace onnx_fp8::cuda {

std::string LibraryName() { return ""; }

}  // namespace onnx_fp8::cuda
