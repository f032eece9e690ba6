// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "onnx_fp8/dtype.h"
#include "providers/cuda/core/queue.h"
#include "providers/ops/block_grid.h"

namespace onnx_fp8::cuda {

// to[i] = the number of code i times the scale of its block; `scales` are of
// float or float8e8m0. `to` is float or bfloat16. Traffic: codes are read once,
// the numbers are written once.
void Dequantize(const Queue& queue, const BlockGrid& grid, const void* codes,
                DType dtype, const void* scales, DType scale_dtype, void* to,
                DType to_dtype);

}  // namespace onnx_fp8::cuda
