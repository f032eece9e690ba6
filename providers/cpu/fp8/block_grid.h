// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a matrix, each with its scale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

inline constexpr int64_t kTaskElements = 32768;  // some ten microseconds
inline constexpr int64_t kStrip = 1024;  // floats; they stay in the L1 cache

// A matrix (rows, columns) in blocks of block_rows x block_columns. There are
// `down` x `across` blocks; the last ones may be smaller.
struct BlockGrid {
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 1, block_columns = 1;  // at least 1
  int64_t down = 0, across = 0;

  int64_t blocks() const { return down * across; }
  // The end of block row `i`.
  int64_t RowEnd(int64_t i) const {
    return i + 1 < down ? (i + 1) * block_rows : rows;
  }
};

// The grid of tensor `t`, whose axes are joined except the last. The sizes of
// blocks are the attributes of these names, where 0 means the whole axis.
// Errors: a rank below 2, a negative attribute.
BlockGrid GridOf(const KernelContext& ctx, const Tensor& t,
                 const char* block_rows, const char* block_columns);

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
