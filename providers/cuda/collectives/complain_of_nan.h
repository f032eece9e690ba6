// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// A node is in error if its operand 0, floats or doubles, has a NaN: the next
// wait says so.
void ComplainOfNan(KernelContext& ctx);

}  // namespace onnx_fp8::cuda
