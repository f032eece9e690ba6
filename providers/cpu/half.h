// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "providers/kernel.h"

namespace onnx_fp8 {

inline bool IsHalf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// Runs `kernel` on float copies of all 16-bit float operands and rounds its
// float results back to what the node promises.
inline void InFloat(KernelContext& c, Kernel kernel) {
  std::vector<Tensor> in(c.num_inputs()), out(c.num_outputs());
  for (size_t i = 0; i < in.size(); ++i) {
    if (!c.HasIn(i)) continue;
    bool half = IsHalf(c.In(i).dtype());
    in[i] = half ? ConvertTo(c.In(i), DType::kFloat) : c.In(i);
  }
  KernelContext inner(c.node(), in, out);
  kernel(inner);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!c.HasOut(i) || !out[i].defined()) continue;
    DType dtype = c.In(0).dtype();
    Tensor& y = c.Out(i, dtype, out[i].shape());
    Tensor rounded = ConvertTo(out[i], dtype);
    if (y.bytes() > 0) std::memcpy(y.raw(), rounded.raw(), y.bytes());
  }
}

}  // namespace onnx_fp8
