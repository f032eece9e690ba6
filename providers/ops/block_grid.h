// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a matrix, each with its scale.
#pragma once

#include <cstdint>

#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

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

}  // namespace onnx_fp8
