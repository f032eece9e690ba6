// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/queue.h"
#include "providers/cuda/gemm/product.h"

namespace onnx_fp8::cuda {

// The scales of an FP8 operand, one for each block of its codes: a matrix of
// blocks along the outer axis by blocks along k, or its transpose.
struct BlockScales {
  const void* data = nullptr;  // float8e8m0 of kMx, else float
  int64_t outer = 0, k = 0;    // numbers of blocks
  bool k_is_rows = false;
};

// The bytes of the scales that cuBLASLt reads. REQUIRES: kVector128, kBlock128
// or kMx. `outer`: blocks along the padded outer axis.
int64_t PackedBytes(ScaleMode mode, int64_t outer, int64_t k);

// Writes the scales as cuBLASLt reads them, with zeros for what x lacks. Scales
// of kMx lie in tiles of 128 outer elements x 4 blocks of k, one row of tiles
// after the other. In a tile, the four scales of outer element i lie at
// i % 32 · 16 + i / 32 · 4. Traffic: the scales are read once, the copy is
// written once.
void PackScales(const Queue& queue, const BlockScales& x, ScaleMode mode,
                int64_t outer, void* to);

}  // namespace onnx_fp8::cuda
