// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// Measures result i, which a library has written, if somebody asks for its
// amax. REQUIRES: it is kept as bfloat16.
void MeasureResult(KernelContext& ctx, size_t i);

}  // namespace onnx_fp8::cuda
