// SPDX-License-Identifier: Apache-2.0
//
// A tensor as rows. A warp or a block works on one row at a time and keeps it
// in registers: vector i of the row, four elements, belongs to its thread
// i % kThreadsOfRow. Each element is read and written by the same thread, and
// all of a row is read before a sum over the row is known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/core/result.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// a / b by a short division, if both are short. REQUIRES: a >= 0, b > 0.
__device__ inline int64_t Quotient(int64_t a, int64_t b) {
  if ((a | b) >> 32 != 0) return a / b;
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// ---- a row and its vectors

// A part of a row, short enough for small numbers.
struct RowPart {
  int64_t origin;  // where vector 0 begins, in the tensor
  int first, end;  // the part's elements, from there on
  bool vectors;    // the memory of its vectors is aligned

  // Whether it has element k of vector i.
  __device__ bool Has(int i, int k) const {
    int at = i * kPerThread + k;
    return at >= first && at < end;
  }
  // Whether vector i can be moved at once.
  __device__ bool HasAll(int i) const {
    int at = i * kPerThread;
    return vectors && at >= first && at + kPerThread <= end;
  }
};

struct Row {
  int64_t origin, first, end;
  bool vectors;

  // What lies in vectors number `vector` and later. The part may end before the
  // row does, but has 2²⁷ vectors.
  __device__ RowPart From(int64_t vector) const {
    constexpr int64_t kMost = int64_t{1} << 29;
    int64_t before = vector * kPerThread, left = end - before;
    int64_t skipped = before < first ? first - before : 0;
    return {origin + before, static_cast<int>(skipped),
            static_cast<int>(left < kMost ? left : kMost), vectors};
  }
  // The number of vectors.
  __device__ int64_t size() const {
    return (end + kPerThread - 1) / kPerThread;
  }
};

// All rows are divided into vectors alike: for ops that also have one number
// per column.
__device__ inline Row RowByColumns(int64_t row, int64_t n) {
  return {row * n, 0, n, n % kPerThread == 0};
}

// The same for a row behind the last one: it has codes only, all zeros.
__device__ inline Row RowOfZeros(int64_t row, int64_t n) {
  return {row * n, 0, 0, false};
}

// All vectors of the row are aligned, whatever n is; the first one and the last
// one may be incomplete.
__device__ inline Row AlignedRow(int64_t row, int64_t n) {
  int64_t start = row * n, lead = start % kPerThread;
  return {start - lead, lead, lead + n, true};
}

// Vector i; `outside` for elements that the row does not have.
__device__ inline void LoadVector(FloatsIn x, const RowPart& row, int i,
                                  float outside, float (&to)[kPerThread]) {
  int64_t at = row.origin + i * kPerThread;
  if (row.HasAll(i)) return Load4(x, at, to);
  for (int k = 0; k < kPerThread; ++k) {
    to[k] = row.Has(i, k) ? Load(x, at + k) : outside;
  }
}

// Nothing more of a result without codes.
__device__ inline void StoreVectorCodes(const FloatsOut&, int64_t, int,
                                        const float (&)[kPerThread]) {}

// The codes of a vector whose first `count` elements exist, from place `at` of
// the tensor on.
__device__ inline void StoreVectorCodes(const ResultWriter& y, int64_t at,
                                        int count,
                                        const float (&x)[kPerThread]) {
  int left = count + y.zeros;
  if (!y.HasCodes() || left <= 0) return;
  StoreCodes(y, at + y.shift, left, CodesOf(y, count, x));
}

// Stores and measures vector i, and leaves in x the numbers that are kept. Out:
// FloatsOut or ResultWriter.
template <typename Out>
__device__ void StoreVector(const Out& y, const RowPart& row, int i,
                            float (&x)[kPerThread], AmaxPart& seen) {
  int64_t at = row.origin + i * kPerThread;
  int count = row.end - i * kPerThread;
  if (row.HasAll(i)) {
    Store4(y, at, x);
    seen.Add4(x);
    count = kPerThread;
  } else {
    ONNX_FP8_UNROLL
    for (int k = 0; k < kPerThread; ++k) {
      if (row.Has(i, k)) seen.Add(x[k] = Store(y, at + k, x[k]));
    }
  }
  StoreVectorCodes(y, at, count, x);
}

// ---- the vectors of one thread: first, first + kStep, …

// The memory of the vectors that can be moved at once. All loads start before
// the first number is needed.
template <int kStep, int kVectors>
__device__ void LoadWholeVectors(FloatsIn x, const RowPart& row, int first,
                                 Vector (&to)[kVectors]) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    int i = first + v * kStep;
    to[v] =
        row.HasAll(i) ? LoadVector4(x, row.origin + i * kPerThread) : Vector();
  }
}

// The numbers of all vectors, of which LoadWholeVectors has loaded `raw`.
template <int kStep, int kVectors>
__device__ void ToVectors(FloatsIn x, const RowPart& row, int first,
                          float outside, const Vector (&raw)[kVectors],
                          float (&to)[kVectors][kPerThread]) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    int i = first + v * kStep;
    if (row.HasAll(i)) {
      ToFloats(x.storage, raw[v], to[v]);
    } else {
      LoadVector(x, row, i, outside, to[v]);
    }
  }
}

// All loads start before the first number is needed.
template <int kStep, Storage kStorage, int kVectors>
__device__ void LoadVectorsAs(const void* data, const RowPart& row, int first,
                              float outside,
                              float (&to)[kVectors][kPerThread]) {
  Vector raw[kVectors];
  LoadWholeVectors<kStep>({data, kStorage}, row, first, raw);
  ToVectors<kStep>({data, kStorage}, row, first, outside, raw, to);
}

template <int kStep, int kVectors>
__device__ void LoadVectors(FloatsIn x, const RowPart& row, int first,
                            float outside, float (&to)[kVectors][kPerThread]) {
  switch (x.storage) {
    case Storage::kBFloat16:
      return LoadVectorsAs<kStep, Storage::kBFloat16>(x.data, row, first,
                                                      outside, to);
    case Storage::kFloat16:
      return LoadVectorsAs<kStep, Storage::kFloat16>(x.data, row, first,
                                                     outside, to);
    default:
      return LoadVectorsAs<kStep, Storage::kFloat>(x.data, row, first, outside,
                                                   to);
  }
}

// Nothing if nobody reads y.
template <int kStep, typename Out, int kVectors>
__device__ void StoreVectors(const Out& y, const RowPart& row, int first,
                             float (&x)[kVectors][kPerThread], AmaxPart& seen) {
  if (!IsRead(y)) return;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    StoreVector(y, row, first + v * kStep, x[v], seen);
  }
}

// ---- whole rows: of vectors only, which are all aligned

struct WholeRow {
  int vectors;

  __device__ bool Has(int i, int) const { return i < vectors; }
};

// The memory of a thread's vectors; zeros behind the row. All loads start
// before the first number is needed. `origin`: where the row begins.
template <int kStep, int kVectors>
__device__ void LoadRaw(FloatsIn x, const WholeRow& row, int64_t origin,
                        int first, Vector (&to)[kVectors]) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    int i = first + v * kStep;
    to[v] =
        i < row.vectors ? LoadVector4(x, origin + i * kPerThread) : Vector();
  }
}

// The vectors of a row that a thread holds. FloatVectors has them as floats.
// BFloat16Vectors has them as they are kept, in half of the registers.
template <int kVectors>
struct FloatVectors {
  static constexpr int kCount = kVectors;
  float x[kVectors][kPerThread];

  __device__ void Set(Storage storage, int v, const Vector& from) {
    ToFloats(storage, from, x[v]);
  }
  __device__ void Get(int v, float (&to)[kPerThread]) const {
    for (int k = 0; k < kPerThread; ++k) to[k] = x[v][k];
  }
};
template <int kVectors>
struct BFloat16Vectors {
  static constexpr int kCount = kVectors;
  Vector raw[kVectors];

  __device__ void Set(Storage, int v, const Vector& from) { raw[v] = from; }
  __device__ void Get(int v, float (&to)[kPerThread]) const {
    Vector four = raw[v];
    Rematerialize(four.words[0]);
    Rematerialize(four.words[1]);
    ToFloats(Storage::kBFloat16, four, to);
  }
};
template <bool kNarrow, int kVectors>
using RowFragment = std::conditional_t<kNarrow, BFloat16Vectors<kVectors>,
                                       FloatVectors<kVectors>>;

// Stores and measures vectors of whole rows, as StoreVector does. No zeros
// follow a row's codes. The floats are kept as `kept`.
struct VectorWriter {
  __device__ VectorWriter(const ResultWriter& y, Storage storage)
      : y(y),
        storage(storage),
        measures(y.Amax()),
        floats(y.HasFloats()),
        codes(y.HasCodes()) {}

  // The vector begins at element `at` of the tensor. Leaves in x the numbers
  // that are kept.
  __device__ void Store(int64_t at, float (&x)[kPerThread],
                        AmaxPart& seen) const {
    if (floats) Store4(FloatsOut{y.r->y.data, storage}, at, x);
    if (!measures && !codes) return;
    Round4(y.r->rounded, x);
    if (measures) seen.Add4(x);
    if (codes) *reinterpret_cast<uint32_t*>(y.r->q + at) = y.Codes(x);
  }

  const ResultWriter& y;
  Storage storage;
  bool measures, floats, codes;
};

// ---- the threads of a row

// The sum of kLanes neighbors.
template <int kLanes = 32, typename T>
__device__ T SumOfWarp(T x) {
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
  }
  return x;
}

template <int kLanes = 32>
__device__ float MaxOfWarp(float x) {
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
  }
  return x;
}

// kWarps warps work on a row, and a block works on kRowsAtOnce rows. kWarps is
// a power of two. All threads of a block ask for sums at the same time, if
// several warps work on a row.
template <int kWarps, int kRowsAtOnce = kWarps == 1 ? 4 : 1>
class RowThreads {
 public:
  static constexpr int kThreadsOfRow = 32 * kWarps;
  static constexpr int kRows = kRowsAtOnce;
  static constexpr int kBlock = kThreadsOfRow * kRows;
  static constexpr int kShared = 4 * kWarps * kRows;

  // `shared`: the block's memory for kShared floats.
  __device__ explicit RowThreads(float* shared) : shared_(shared) {}

  __device__ int thread() const { return threadIdx.x % kThreadsOfRow; }
  // Which of the block's rows it is.
  __device__ int line() const { return threadIdx.x / kThreadsOfRow; }
  // The rows are first(), first() + step(), …
  __device__ int64_t first() const {
    return static_cast<int64_t>(blockIdx.x) * kRows + line();
  }
  __device__ int64_t step() const {
    return static_cast<int64_t>(gridDim.x) * kRows;
  }

  __device__ float Sum(float x) {
    x = SumOfWarp(x);
    if constexpr (kWarps > 1) {
      float* parts = Exchange(x, x);
      x = SumOfWarp<kWarps>(parts[threadIdx.x % kWarps]);
    }
    return x;
  }

  __device__ void Sum(float& x, float& y) {
    x = SumOfWarp(x);
    y = SumOfWarp(y);
    if constexpr (kWarps > 1) {
      float* parts = Exchange(x, y);
      x = SumOfWarp<kWarps>(parts[threadIdx.x % kWarps]);
      y = SumOfWarp<kWarps>(parts[kWarps + threadIdx.x % kWarps]);
    }
  }

  __device__ float Max(float x) {
    x = MaxOfWarp(x);
    if constexpr (kWarps > 1) {
      float* parts = Exchange(x, x);
      x = MaxOfWarp<kWarps>(parts[threadIdx.x % kWarps]);
    }
    return x;
  }

 private:
  // The x of all warps of the row, then their y. Two buffers take turns: while
  // some warps still read one, others write the other one.
  __device__ float* Exchange(float x, float y) {
    float* parts = shared_ + (turn_ * kRows + line()) * 2 * kWarps;
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) {
      parts[thread() / 32] = x;
      parts[kWarps + thread() / 32] = y;
    }
    __syncthreads();
    return parts;
  }

  float* shared_;
  int turn_ = 0;
};

// ---- rows that have scales of their own

// The factor of row number `index`, of which each thread has seen a part. The
// scale is stored.
template <typename Threads>
__device__ float FactorFrom(Threads& threads, const Result& r, int64_t index,
                            const AmaxPart& seen) {
  float amax = threads.Max(__uint_as_float(seen.finite));
  float factor = BlockFactor(r.rows, amax);
  if (threads.thread() == 0) StoreScale(r.rows, r.row_scales, index, factor);
  return factor;
}

// The same for a row x in registers, as it will be stored.
template <typename Threads, typename Part, int kVectors>
__device__ float FactorOfRow(Threads& threads, const Result& r, const Part& row,
                             int64_t index,
                             const float (&x)[kVectors][kPerThread]) {
  AmaxPart seen;
  for (int v = 0; v < kVectors; ++v) {
    int i = threads.thread() + v * threads.kThreadsOfRow;
    for (int k = 0; k < kPerThread; ++k) {
      if (row.Has(i, k)) seen.Add(Rounded(r.rounded, x[v][k]));
    }
  }
  return FactorFrom(threads, r, index, seen);
}

// ---- launches

// Starts a kernel whose rows have kWarps warps each; p is its operand.
template <int kWarps, typename P>
void LaunchRows(const KernelContext& ctx, void (*kernel)(P), int64_t rows,
                const P& p, size_t shared_bytes = 0) {
  using Threads = RowThreads<kWarps>;
  if (rows == 0) return;
  auto blocks = static_cast<unsigned>(
      std::min<int64_t>(DivideUp(rows, Threads::kRows), kMostBlocks));
  Launch(kernel, blocks, Threads::kBlock, shared_bytes, QueueOf(ctx).stream(),
         p);
}

// The longest row that threads can hold.
inline constexpr int64_t kLongestRow = 16384;
// A longer row is read several times: warps per row, and elements read at once.
inline constexpr int kLongWarps = 32;
inline constexpr int kLongStep = 32 * kLongWarps;

// Calls start.operator()<kWarps, kVectors>() with threads that hold a row of n
// elements, kVectors vectors each. False: none can.
template <typename Start>
bool WithRowOf(int64_t n, const Start& start) {
  // An incomplete vector may be at either end.
  if (n % kPerThread != 0) n += kPerThread - 1;
  if (n > kLongestRow) return false;
  if (n <= 128) {
    start.template operator()<1, 1>();
  } else if (n <= 256) {
    start.template operator()<1, 2>();
  } else if (n <= 512) {
    start.template operator()<1, 4>();
  } else if (n <= 1024) {
    start.template operator()<1, 8>();
  } else if (n <= 2048) {
    start.template operator()<4, 4>();
  } else if (n <= 4096) {
    start.template operator()<4, 8>();
  } else if (n <= 8192) {
    start.template operator()<16, 4>();
  } else {
    start.template operator()<16, 8>();
  }
  return true;
}

}  // namespace onnx_fp8::cuda
