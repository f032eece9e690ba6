// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// The number of independent partial results of a reduction. Without them it is
// a chain of operations that can't be vectorized, because float sums may not be
// reordered.
inline constexpr int64_t kLanes = 16;

// The same for comparisons. GCC 12 vectorizes them in a loop, but not in a loop
// that it has unrolled, and it unrolls up to 16.
inline constexpr int64_t kCompareLanes = 64;

// f(0) + … + f(n-1) in double; for use inside OnBestIsa.
template <typename F>
double LaneSum(int64_t n, F f) {
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] += f(i + j);
  }
  for (; i < n; ++i) lane[0] += f(i);
  for (int64_t j = 1; j < kLanes; ++j) lane[0] += lane[j];
  return lane[0];
}

}  // namespace onnx_fp8
