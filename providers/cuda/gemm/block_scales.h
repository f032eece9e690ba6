// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/queue.h"
#include "providers/cuda/gemm/product.h"

namespace onnx_fp8::cuda {

// The scales of an FP8 operand, one for each block of its codes: a matrix of
// blocks along the outer axis by blocks along k, or its transpose.
struct BlockScales {
  const float* data = nullptr;
  int64_t outer = 0, k = 0;  // numbers of blocks
  bool k_is_rows = false;
};

// The number of scales that cuBLASLt reads. REQUIRES: kVector128 or kBlock128.
// `outer`: blocks along the padded outer axis.
int64_t PackedScales(ScaleMode mode, int64_t outer, int64_t k);

// Writes them as cuBLASLt reads them, with zeros for what x lacks. Traffic: the
// scales are read once, the copy is written once.
void PackScales(const Queue& queue, const BlockScales& x, ScaleMode mode,
                int64_t outer, float* to);

}  // namespace onnx_fp8::cuda
