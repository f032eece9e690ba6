// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/math/narrow_floats.h"

namespace onnx_fp8 {

// Writes finished floats to row i of c, or adds them, from column j on.
// REQUIRES: the operands are not double.
inline void WriteResult(const GemmProblem& p, int64_t i, int64_t j,
                        const float* row, int64_t n) {
  int64_t at = i * p.ldc + j;
  if (IsHalf(p.c_dtype)) {
    NarrowFloats(p.c_dtype, row, static_cast<uint16_t*>(p.c) + at, n);
    return;
  }
  float* c = static_cast<float*>(p.c) + at;
  if (!p.add) {
    std::copy_n(row, n, c);
    return;
  }
  for (int64_t k = 0; k < n; ++k) c[k] += row[k];
}

}  // namespace onnx_fp8
