// SPDX-License-Identifier: Apache-2.0
//
// Gradients of norms of rows that don't fit in registers: a kernel for the sums
// of columns, and one for dx.
#pragma once

#include <cstdint>

#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/norm_slopes.h"

namespace onnx_fp8::cuda {
namespace {

// RMSNorm's 1 / sqrt(mean(x²) + epsilon) of each row.
__global__ void __launch_bounds__(kLongStep, 1)
    InverseKernel(NormGrad p, float* inverses) {
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  for (int64_t r = threads.first(); r < p.sizes.rows; r += threads.step()) {
    const Row row = RowByColumns(r, p.sizes.n);
    float square = 0;
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      float x[kPerThread];
      LoadVector(p.x, row.From(i), threads.thread(), 0, x);
      for (float v : x) square = fmaf(v, v, square);
    }
    Slopes s = SlopesFrom<false>(p, {}, threads.Sum(square), 0);
    if (threads.thread() == 0) inverses[r] = s.inverse;
  }
}

// A block of this many lines adds up a tile of columns.
constexpr int kSumLines = 8;
constexpr int kTile = 32 * kPerThread;

// Block (x, y) adds up rows 8 y … 8 y + 7, and every 8 parts-th row after them.
// It comes before dx is written, which may lie where dy or x does.
template <bool kCentered>
__global__ void __launch_bounds__(32 * kSumLines) ColumnSumsKernel(NormGrad p) {
  __shared__ float sums[2][kSumLines][kTile];
  int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  int64_t vector = static_cast<int64_t>(blockIdx.x) * 32;
  float dscale[kPerThread] = {}, dbias[kPerThread] = {};
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kSumLines + line;
       r < p.sizes.rows; r += p.parts * kSumLines) {
    const RowPart row = RowByColumns(r, p.sizes.n).From(vector);
    Slopes s = {0, Load(p.inverses, r), 0, 0};
    if constexpr (kCentered) s.mean = Load(p.means, r);
    float dy[kPerThread], x[kPerThread];
    LoadVector(p.dy, row, lane, 0, dy);
    LoadVector(p.x, row, lane, 0, x);
    for (int k = 0; k < kPerThread; ++k) {
      dscale[k] = fmaf(dy[k], Normal(s, x[k]), dscale[k]);
      dbias[k] += dy[k];
    }
  }
  for (int k = 0; k < kPerThread; ++k) {
    sums[0][line][lane * kPerThread + k] = dscale[k];
    sums[1][line][lane * kPerThread + k] = dbias[k];
  }
  __syncthreads();
  int which = threadIdx.x / kTile, own = threadIdx.x % kTile;
  int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + own;
  if (column >= p.sizes.n || (which == 1 && !kCentered)) return;
  float sum = 0;
  for (int i = 0; i < kSumLines; ++i) sum += sums[which][i][own];
  p.partial[(which * p.parts + blockIdx.y) * p.sizes.n + column] = sum;
}
static_assert(32 * kSumLines == 2 * kTile);

// dh and x of a row's vector number `first` + i.
__device__ void LoadProducts(const NormGrad& p, const Row& row, int64_t first,
                             int i, float (&dh)[kPerThread],
                             float (&x)[kPerThread]) {
  float dy[kPerThread];
  LoadVector(p.dy, row.From(first), i, 0, dy);
  LoadVector(p.x, row.From(first), i, 0, x);
  Scale(p, RowByColumns(0, p.sizes.n).From(first), i, dy, dh);
}

// x = dx of a row's vector number `first` + i.
template <bool kAdd>
__device__ void ComputeGradient(const NormGrad& p, const Row& row,
                                int64_t first, int i, const Slopes& s,
                                float (&x)[kPerThread]) {
  float dh[kPerThread], more[kPerThread] = {};
  LoadProducts(p, row, first, i, dh, x);
  if (kAdd) LoadVector(p.more, row.From(first), i, 0, more);
  for (int k = 0; k < kPerThread; ++k) {
    x[k] = Gradient(s, dh[k], Normal(s, x[k])) + more[k];
  }
}

// What this thread sees of the row's dx.
template <bool kAdd>
__device__ AmaxPart AmaxOfLongRow(const NormGrad& p, const Row& row, int thread,
                                  const Slopes& s) {
  AmaxPart seen;
  for (int64_t i = 0; i < row.size(); i += kLongStep) {
    const RowPart part = row.From(i);
    float x[kPerThread];
    ComputeGradient<kAdd>(p, row, i, thread, s, x);
    for (int k = 0; k < kPerThread; ++k) {
      if (part.Has(thread, k)) seen.Add(Rounded(p.dx.rounded, x[k]));
    }
  }
  return seen;
}

template <bool kAdd>
__device__ void WriteLongRow(const NormGrad& p, const ResultWriter& dx,
                             const Row& row, int thread, const Slopes& s,
                             AmaxPart& seen) {
  for (int64_t i = 0; i * kPerThread < p.sizes.to_n; i += kLongStep) {
    float x[kPerThread];
    ComputeGradient<kAdd>(p, row, i, thread, s, x);
    StoreVector(dx, row.From(i), thread, x, seen);
  }
}

// dx alone.
template <bool kCentered, bool kAdd>
__global__ void __launch_bounds__(kLongStep, 1) LongNormGradKernel(NormGrad p) {
  if (IsDone(p.dx)) return;
  ResultWriter dx(p.dx, MayWrite(p.dx));
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  int thread = threads.thread();
  AmaxPart seen;
  for (int64_t r = threads.first(); r < p.sizes.to_rows; r += threads.step()) {
    bool exists = r < p.sizes.rows;
    dx.SetRow(r, p.sizes.n, p.sizes.to_n, exists);
    if (!exists) {
      WriteLongRow<kAdd>(p, dx, RowOfZeros(r, p.sizes.n), thread, {}, seen);
      continue;
    }
    const Row row = RowByColumns(r, p.sizes.n);
    Slopes s = KnownSlopes<kCentered>(p, r);
    float first = 0, second = 0;
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      float dh[kPerThread], x[kPerThread];
      LoadProducts(p, row, i, thread, dh, x);
      for (int k = 0; k < kPerThread; ++k) {
        AddElement<kCentered>(s, dh[k], x[k], first, second);
      }
    }
    threads.Sum(first, second);
    s = SlopesFrom<kCentered>(p, s, first, second);
    if (p.dx.row_scales) {
      AmaxPart of_row = AmaxOfLongRow<kAdd>(p, row, thread, s);
      dx.factor = FactorFrom(threads, p.dx, r, of_row);
    }
    WriteLongRow<kAdd>(p, dx, row, thread, s, seen);
  }
  seen.AddOfBlock(dx.Amax());
}

}  // namespace
}  // namespace onnx_fp8::cuda
