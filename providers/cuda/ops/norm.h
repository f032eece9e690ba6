// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/arguments.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// x as rows of the normalized axes, as in the CPU's norm.cc.
struct NormRows {
  NormRows(const KernelContext& ctx, const Tensor& x) {
    int64_t axis = AxisIn(ctx, ctx.Int("axis", -1), x.rank());
    Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
    AxisView v = ViewAlong(x.shape(), axis, x.rank() - axis);
    count = v.outer;
    n = v.n;
    tail = Shape(x.shape().begin() + axis, x.shape().end());
    statistics = x.shape();
    std::fill(statistics.begin() + axis, statistics.end(), 1);
  }

  int64_t count, n;
  Shape tail;        // of one row
  Shape statistics;  // of one number per row
};

}  // namespace onnx_fp8::cuda
