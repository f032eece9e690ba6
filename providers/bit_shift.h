// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "providers/arguments.h"

namespace onnx_fp8 {

// Whether BitShift shifts to the right. Errors: no direction; operands that are
// no unsigned integers.
inline bool ShiftsRight(const KernelContext& ctx) {
  bool right = ChoiceIn<bool>(ctx, "direction", "", {"LEFT", "RIGHT"});
  DType dtype = Operand(ctx, 0).dtype();
  Check(dtype == DType::kUInt8 || dtype == DType::kUInt16 ||
            dtype == DType::kUInt32 || dtype == DType::kUInt64,
        "[", ctx.Where(), "] expected unsigned integers, got ", Name(dtype));
  return right;
}

}  // namespace onnx_fp8
