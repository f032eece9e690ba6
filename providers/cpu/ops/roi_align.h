// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

// The kernel of RoiAlign, which RegisterPool registers.
void RoiAlign(KernelContext& ctx);

}  // namespace onnx_fp8
