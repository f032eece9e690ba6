// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/kernels.h"

namespace onnx_fp8 {

// The speed of the arithmetic of `kernels` on registers alone: multiplications
// and additions per second on all threads of the pool at once. Each call
// measures anew, in about a tenth of a second. No product can be faster.
double PeakFlops(const GemmKernels& kernels);

}  // namespace onnx_fp8
