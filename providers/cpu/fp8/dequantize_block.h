// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "providers/kernel.h"
#include "providers/ops/block_grid.h"

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

// ---- shared with quantize_block.cc and scaled_matmul.cc

// Elements of a task, and of a strip of a row.
inline constexpr int64_t kTaskElements = 32768;  // some ten microseconds
inline constexpr int64_t kStrip = 1024;  // floats; they stay in the L1 cache

// The scales of the blocks, (down, across). Errors: not float or float8e8m0, or
// another shape; for a single block a scalar will do.
std::vector<float> ScalesIn(const KernelContext& ctx, size_t input,
                            const BlockGrid& grid);

// to[j] = the entry of `blocks`, a row of blocks, for the block of column j.
template <typename T>
void SpreadAcross(const BlockGrid& grid, const T* blocks, T* to) {
  for (int64_t j = 0; j < grid.across; ++j) {
    int64_t end = std::min((j + 1) * grid.block_columns, grid.columns);
    std::fill(to + j * grid.block_columns, to + end, blocks[j]);
  }
}

}  // namespace onnx_fp8
