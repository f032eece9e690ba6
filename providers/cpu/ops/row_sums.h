// SPDX-License-Identifier: Apache-2.0
//
// Sums over the rows of a matrix, which a kernel computes beside its other
// result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "providers/cpu/tasks.h"
namespace onnx_fp8 {

// The number of rows of one partial sum. It is fixed, so that the sums do not
// depend on the number of threads.
inline constexpr int64_t kRowsPerSum = 64;

// to[i] = the sum of `count` partial sums, each of n columns, which lie one
// after the other in memory.
template <typename T>
void AddUpRowSums(const double* sums, int64_t count, int64_t n, T* to) {
  ParallelFor(n, std::max<int64_t>(kGrain / (count + 1), 64),
              [=](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  double total = 0;
                  for (int64_t s = 0; s < count; ++s) total += sums[s * n + i];
                  to[i] = static_cast<T>(total);
                }
              });
}

}  // namespace onnx_fp8
