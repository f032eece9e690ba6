// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8::cuda {

// Opens cuDNN, once: the machine's, or the one in the cache that built us. Then
// the functions of cudnn.h may be called. Returns its version, 92700 for
// 9.27.0; 0: there is none from 9.15.1 on, whose attention we trust.
size_t OpenCudnn();

}  // namespace onnx_fp8::cuda
