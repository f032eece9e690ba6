// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "providers/cpu/block_grid.h"

namespace onnx_fp8 {

// x = q · the scale of its block, rounded once. On all threads. REQUIRES:
// dtype is kE4M3 or kE5M2, scales are the grid's.
void DequantizeTo(DType dtype, const void* q, const BlockGrid& grid,
                  const std::vector<float>& scales, float* x);

}  // namespace onnx_fp8
