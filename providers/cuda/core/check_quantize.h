// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "onnx_fp8/dtype.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// Errors: the attributes `to` and `q_max` do not name an FP8 format and a
// positive number.
inline void CheckQuantize(const KernelContext& ctx) {
  auto to = static_cast<DType>(ctx.Int("to", 0));
  float q_max = ctx.Float("q_max", 0.0f);
  Check(IsFloat8(to) && q_max > 0, "[", ctx.Where(),
        "] expected to = 17 or 19 and q_max > 0, got ", ctx.Int("to", 0),
        " and ", q_max);
}

}  // namespace onnx_fp8::cuda
