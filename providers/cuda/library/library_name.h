// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8::cuda {

// The library that computes attention and convolutions, "cuDNN 9.27.0", or ""
// if there is none.
std::string LibraryName();

}  // namespace onnx_fp8::cuda
