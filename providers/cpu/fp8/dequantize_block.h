// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "providers/cpu/fp8/block_scales.h"

namespace onnx_fp8 {

// x = q · the scale of its block, rounded once. Uses all threads. REQUIRES:
// dtype is kE4M3 or kE5M2; the scales fit the grid.
void DequantizeTo(DType dtype, const void* q, const BlockGrid& grid,
                  const std::vector<float>& scales, float* x);

// True if every scale is a power of two from 2^-110 to 2^111: an 8-bit float
// times such a scale is a normal bfloat16, or 0.
bool ExactInBFloat16(const std::vector<float>& scales);

// The same as bfloat16. REQUIRES: ExactInBFloat16(scales).
void DequantizeToBFloat16(DType dtype, const void* q, const BlockGrid& grid,
                          const std::vector<float>& scales, uint16_t* x);

}  // namespace onnx_fp8
