// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cpu/attention/operands.h"
#include "providers/cpu/gemm/kernels.h"

namespace onnx_fp8 {

// Columns of a block. A divisor of the depth of a layer of packed panels, and a
// multiple of kLanes.
inline constexpr int64_t kColumns = 256;

// Rows of a block: of the left operands of attention's products.
struct AttentionBlocks {
  int64_t rows;
  // Rows that are computed together where a causal mask cuts the block.
  int64_t piece;

  // Elements from one row of scores to the next: one cache line more than a
  // power of two, because otherwise a column of scores would fall into few sets
  // of the cache.
  static int64_t Stride() { return kColumns + 16; }
  // Elements of a block of scores. Kernels may read whole tiles of rows.
  int64_t Scores() const { return RoundUp(rows, kLanes) * Stride(); }
};

// Pieces fill whole tiles of the kernels.
template <typename E>
AttentionBlocks BlocksOf() {
  const GemmKernels& kernels = kRounded<E> ? Bf16Kernels() : FloatKernels();
  int64_t piece = RoundUp(32, kernels.rows);
  return {.rows = 3 * piece, .piece = piece};
}

}  // namespace onnx_fp8
