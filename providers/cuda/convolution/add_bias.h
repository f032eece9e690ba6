// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cuda/core/floats.h"

namespace onnx_fp8::cuda {

// Adds an element of the bias to each of the planes of y, whose channels take
// turns.
void AddBias(const KernelContext& ctx, FloatsOut y, FloatsIn bias,
             int64_t planes, int64_t channels, int64_t plane);

}  // namespace onnx_fp8::cuda
