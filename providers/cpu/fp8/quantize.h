// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

// What all ops that quantise input 0 expect. Errors: it is not float; `to` is
// no 8-bit float or `q_max` not positive.
void CheckQuantize(const KernelContext& c);

}  // namespace onnx_fp8
