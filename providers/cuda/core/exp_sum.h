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

  // Adds all numbers of `vectors`, which are FloatVectors or BFloat16Vectors.
  template <typename Vectors>
  __device__ void Add(const Vectors& vectors) {
    float before = largest, x[kPerThread];
    ONNX_FP8_UNROLL
    for (int v = 0; v < Vectors::kCount; ++v) {
      vectors.Get(v, x);
      for (float value : x) largest = fmaxf(largest, value);
    }
    if (largest > before) sum *= Exp(before - largest);
    float shift = largest == kLowest ? 0.0f : largest;
    ONNX_FP8_UNROLL
    for (int v = 0; v < Vectors::kCount; ++v) {
      vectors.Get(v, x);
      for (float value : x) sum += Exp(value - shift);
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

// Four times -Inf.
__device__ inline Vector FourLowest(Storage storage) {
  constexpr uint32_t kFloat = 0xFF800000u, kBFloat16 = 0xFF80FF80u;
  constexpr uint32_t kFloat16 = 0xFC00FC00u;
  if (storage == Storage::kFloat) return {kFloat, kFloat, kFloat, kFloat};
  uint32_t two = storage == Storage::kBFloat16 ? kBFloat16 : kFloat16;
  return {two, two};
}

struct KeepNothing {
  __device__ void operator()(int64_t, const Vector&) const {}
};

// Returns the sum of a row of any length. A thread starts to load kVectors
// vectors before it adds the previous kVectors vectors. Thread 0 adds the first
// vector of the row if the vector is incomplete. Thread 1 does the same with
// the last vector. When a thread has read the complete vector i, it calls
// keep(i, raw). It also calls keep for numbers i behind the row, with a raw of
// no meaning. If kNarrow, x is kept as bfloat16. REQUIRES: `row` is an
// AlignedRow.
template <bool kNarrow, int kVectors, int kWarps, typename Keep = KeepNothing>
__device__ ExpSum ExpSumOfRow(RowThreads<kWarps>& threads, FloatsIn x,
                              const Row& row, const Keep& keep = {}) {
  constexpr int kStep = RowThreads<kWarps>::kThreadsOfRow;
  x = Known<kNarrow>(x);
  const int thread = threads.thread();
  const int64_t begin = (row.first + kPerThread - 1) / kPerThread;
  const int64_t end = row.end / kPerThread;
  ExpSum part;
  Vector next[kVectors];
  auto load = [&](int64_t i) {
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v, i += kStep) {
      next[v] = i < end ? LoadVector4(x, row.origin + i * kPerThread)
                        : FourLowest(x.storage);
    }
  };
  load(begin + thread);
  for (int64_t i = begin + thread; i < end; i += kStep * kVectors) {
    RowFragment<kNarrow, kVectors> some;
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      some.Set(x.storage, v, next[v]);
      keep(i + v * kStep, next[v]);
    }
    load(i + kStep * kVectors);
    part.Add(some);
  }
  int64_t incomplete = -1;
  if (thread == 0 && begin > 0) incomplete = 0;
  if (thread == 1 && end >= begin && end * kPerThread < row.end) {
    incomplete = end;
  }
  if (incomplete >= 0) {
    FloatVectors<1> some;
    LoadVector(x, row.From(incomplete), 0, kLowest, some.x[0]);
    part.Add(some);
  }
  return SumOfParts(threads, part);
}

}  // namespace onnx_fp8::cuda
