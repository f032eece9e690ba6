// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace onnx_fp8 {

// Errors: `error` is one; the message has `call`, and the name and the text
// that CUDA gives it.
void CheckCuda(cudaError_t error, const char* call);

}  // namespace onnx_fp8

// Calls a function of the CUDA runtime. Errors: CheckCuda's.
#define ONNX_FP8_CUDA(call) ::onnx_fp8::CheckCuda((call), #call)
