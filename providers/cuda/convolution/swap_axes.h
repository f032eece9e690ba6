// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/floats.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// y [columns, middle, rows, inner] = x [rows, middle, columns, inner] with axes
// 0 and 2 in each other's place. Both are kept alike. Traffic: x is read once,
// y is written once.
void SwapAxes(const KernelContext& ctx, FloatsIn x, FloatsOut y, int64_t rows,
              int64_t middle, int64_t columns, int64_t inner);

}  // namespace onnx_fp8::cuda
