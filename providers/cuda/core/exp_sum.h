// SPDX-License-Identifier: Apache-2.0
//
// Σ e^x of numbers that are read once: the largest number so far is the one
// that the others are compared with. So each e^d has d <= 0. Its relative error
// is 3e-7 - 1e-7 d, and its error is 3e-7 at most.
#pragma once

#include <cmath>
#include <cstdint>

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/rows.h"

namespace onnx_fp8::cuda {

// Σ e^x = sum e^largest. An x that is NaN or +Inf makes sum NaN, in the end.
struct ExpSum {
  float largest = kLowest, sum = 0;

  template <int kVectors>
  __device__ void Add(const float (&x)[kVectors][kPerThread]) {
    float before = largest;
    for (int v = 0; v < kVectors; ++v) {
      for (float value : x[v]) largest = fmaxf(largest, value);
    }
    if (largest > before) sum *= Exp(before - largest);
    float shift = largest == kLowest ? 0.0f : largest;
    for (int v = 0; v < kVectors; ++v) {
      for (float value : x[v]) sum += Exp(value - shift);
    }
  }

  // This sum with another largest number. If nothing but -Inf was added, and
  // `other` is -Inf, the result is NaN, as the CPU's is.
  __device__ float Relative(float other) const {
    return sum * Exp(largest - other);
  }

  __device__ static float Exp(float d) {
    return ShortExp2(1.4426950408889634f * d);
  }
};

// The sum of the threads' parts of a row.
template <int kWarps>
__device__ ExpSum SumOfParts(RowThreads<kWarps>& threads, const ExpSum& part) {
  float largest = threads.Max(part.largest);
  return {largest, threads.Sum(part.Relative(largest))};
}

// The sum of a row, of any length. The next vectors are loaded while these are
// added.
template <int kWarps>
__device__ ExpSum ExpSumOfRow(RowThreads<kWarps>& threads, FloatsIn x,
                              const Row& row) {
  constexpr int kStep = RowThreads<kWarps>::kThreadsOfRow, kVectors = 4;
  const int thread = threads.thread();
  ExpSum part;
  Raw4 next[kVectors];
  LoadWholeVectors<kStep>(x, row.From(0), thread, next);
  for (int64_t i = 0; i < row.size(); i += kStep * kVectors) {
    Raw4 raw[kVectors];
    for (int v = 0; v < kVectors; ++v) raw[v] = next[v];
    LoadWholeVectors<kStep>(x, row.From(i + kStep * kVectors), thread, next);
    float some[kVectors][kPerThread];
    ToVectors<kStep>(x, row.From(i), thread, kLowest, raw, some);
    part.Add(some);
  }
  return SumOfParts(threads, part);
}

}  // namespace onnx_fp8::cuda
