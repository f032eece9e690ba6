// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

// What follows a product whose result needs more than cuBLASLt does:
// y[i][j] = sum[i][j] · row_scale[i] · column_scale[j]
//           + beta · c[i · c_row + j · c_column].
// Factors and c are left out if they are null. Traffic: the sums are read once,
// y is written once.
struct Finish {
  int64_t m, n;
  const float* sum;
  int64_t ld;  // of the sums, at least n
  const float *row_scale = nullptr, *column_scale = nullptr;
  FloatsIn c;  // data null: none
  int64_t c_row = 0, c_column = 0;
  float beta = 1.0f;
  FloatsOut y;
};

// REQUIRES: y does not overlap the sums, or is float and lies where they do,
// with ld = n.
void FinishProduct(const Queue& queue, const Finish& finish);

}  // namespace onnx_fp8::cuda
