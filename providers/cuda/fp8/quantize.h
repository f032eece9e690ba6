// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// Errors: the attributes `to` and `q_max` do not name an FP8 format and a
// positive number.
void CheckQuantize(const KernelContext& ctx);

}  // namespace onnx_fp8::cuda
