// SPDX-License-Identifier: Apache-2.0
//
// The scales of a matrix in blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "providers/kernel.h"
#include "providers/ops/block_grid.h"

namespace onnx_fp8 {

inline constexpr int64_t kTaskElements = 32768;  // some ten microseconds
inline constexpr int64_t kStrip = 1024;  // floats; they stay in the L1 cache

// The scales of the blocks, (down, across). Errors: not float or float8e8m0, or
// another shape; for a single block a scalar will do.
std::vector<float> ScalesIn(const KernelContext& ctx, size_t input,
                            const BlockGrid& grid);

// to[j] = the entry of `blocks` for the block of column j, in one row of
// blocks.
template <typename T>
void SpreadAcross(const BlockGrid& grid, const T* blocks, T* to) {
  for (int64_t j = 0; j < grid.across; ++j) {
    int64_t end = std::min((j + 1) * grid.block_columns, grid.columns);
    std::fill(to + j * grid.block_columns, to + end, blocks[j]);
  }
}

}  // namespace onnx_fp8
