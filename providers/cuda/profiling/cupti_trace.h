// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/activity.h"

namespace onnx_fp8::cuda {

// The activities of this process' device, by CUPTI. The first call starts
// CUPTI, and must come before the CUDA runtime is used: CUPTI changes kernels
// as their modules are loaded. One timeline uses it at a time. Errors: no
// CUPTI; what it refuses.
ActivityTrace& CuptiTrace();

}  // namespace onnx_fp8::cuda
