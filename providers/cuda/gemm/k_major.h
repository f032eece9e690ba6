// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

// A matrix of FP8 codes (rows, columns), and whether K runs along its rows.
struct Codes {
  const uint8_t* data = nullptr;
  int64_t rows = 0, columns = 0;
  bool k_is_rows = false;

  int64_t k() const { return k_is_rows ? rows : columns; }
  int64_t outer() const { return k_is_rows ? columns : rows; }
};

// Writes x as (outer, k) with zeros up to `to_outer` rows of `to_k` codes.
// Traffic: x is read once, the copy is written once. REQUIRES: to_k is a
// multiple of 4, `to` is aligned to 4.
void PackKMajor(const Queue& queue, const Codes& x, int64_t to_outer,
                int64_t to_k, uint8_t* to);

}  // namespace onnx_fp8::cuda
