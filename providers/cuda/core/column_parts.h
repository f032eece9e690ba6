// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/floats.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// Partial sums of the columns of two matrices.
struct ColumnParts {
  const float* partial;     // [2][parts][n]
  FloatsOut dscale, dbias;  // null: nobody reads it
  int64_t parts, n;
};

// Adds them up in a fixed order. Traffic: the parts are read once.
void AddColumnParts(const KernelContext& ctx, const ColumnParts& p);

}  // namespace onnx_fp8::cuda
