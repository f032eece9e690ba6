// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

enum class Shift { kLeft, kRight, kSignedRight };

// How BitShift shifts: to the right, negative integers get ones from the left.
// Errors: no direction.
inline Shift ShiftOf(const KernelContext& ctx) {
  if (!ChoiceIn<bool>(ctx, "direction", "", {"LEFT", "RIGHT"})) {
    return Shift::kLeft;
  }
  DType dtype = Operand(ctx, 0).dtype();
  bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt16 ||
                   dtype == DType::kInt32 || dtype == DType::kInt64;
  return is_signed ? Shift::kSignedRight : Shift::kRight;
}

// The dtype that BitCast gives the bytes of its operand. Errors: its elements
// have another width.
inline DType BitCastTarget(const KernelContext& ctx) {
  DType from = Operand(ctx, 0).dtype();
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Check(ByteSize(to) == ByteSize(from), "[", ctx.Where(),
        "] expected a dtype with elements of ", ByteSize(from), " bytes, as ",
        Name(from), " has, got ", Name(to));
  return to;
}

}  // namespace onnx_fp8
