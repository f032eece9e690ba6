// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

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
