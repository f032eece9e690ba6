// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/amax.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The checks of all ops that quantize input 0. Errors: it is not float;
// CheckCodeFormat's.
void CheckQuantize(const KernelContext& ctx);

// Errors: `to` is no 8-bit float, or `q_max` is not positive.
void CheckCodeFormat(const KernelContext& ctx);

// The factor of x that makes the largest |x| q_max.
float QuantizingFactor(float q_max, float amax);

// Sets the factor, and the scale of the codes, for a tensor with that amax.
void SetOwnScale(float q_max, float amax, float* factor, float* scale);

// The amax that the ops report: infinite if any element is NaN or infinite.
float ReportedAmax(const Amax& amax);

}  // namespace onnx_fp8
