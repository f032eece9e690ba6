// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/kernels.h"

namespace onnx_fp8 {

// What the arithmetic of `kernels` reaches on registers alone, multiplications
// and additions per second on all threads of the pool at once. Measured anew by
// each call, in about a tenth of a second: no product can be faster.
double PeakFlops(const GemmKernels& kernels);

}  // namespace onnx_fp8
