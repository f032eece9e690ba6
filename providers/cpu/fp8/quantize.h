// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

// Checks that all ops that quantize input 0 need. Errors: it is not float; `to`
// is no 8-bit float, or `q_max` is not positive.
void CheckQuantize(const KernelContext& ctx);

// The factor of x that makes the largest |x| q_max.
float QuantizingFactor(float q_max, float amax);

}  // namespace onnx_fp8
