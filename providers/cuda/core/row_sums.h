// SPDX-License-Identifier: Apache-2.0
//
// Element-wise ops that also sum their result over all rows, as the gradient of
// a bias is. Each block sums kRowsPerSum rows of a tile of columns in a fixed
// order, and a second kernel adds the blocks' sums. So the bits don't depend on
// the order of blocks. Traffic: each operand is read once, the result is
// written once; the partial sums, rows/64 of the result, are written and read.
// The result may also be quantized: the block writes both orientations of its
// tile's codes.
#pragma once

#include <cstdint>

#include "providers/cuda/core/code_tile.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/result.h"

namespace onnx_fp8::cuda {

inline constexpr int kRowsPerSum = 64;
// A block is 8 rows of 32 threads, of which each has 4 columns.
inline constexpr int kTileRows = 8, kTileLanes = 32;
inline constexpr int kTileColumns = kTileLanes * kPerThread;

template <int kIn>
struct RowSums {
  FloatsIn in[kIn];
  Result out;
  int64_t rows, columns;
  float* partial;  // [blocks of rows][columns]
};

namespace {

// kWhole: IsWhole(s). The bits are the same, but there is less to ask for each
// vector.
template <bool kWhole, typename F, int kIn>
__global__ void __launch_bounds__(kTileRows* kTileLanes)
    RowSumsKernel(RowSums<kIn> s, F f) {
  if (IsDone(s.out)) return;
  const ResultWriter out(s.out, MayWrite(s.out));
  const MatrixSizes& m = s.out.sizes;
  const bool measures = out.Amax();
  __shared__ float sums[kTileRows][kTileColumns];
  constexpr int kStride = kTileLanes + 1;
  __shared__ uint32_t codes[kRowsPerSum * kStride];
  int lane = threadIdx.x % kTileLanes, line = threadIdx.x / kTileLanes;
  int64_t column = static_cast<int64_t>(blockIdx.y) * kTileColumns +
                   static_cast<int64_t>(lane) * kPerThread;
  int64_t first = static_cast<int64_t>(blockIdx.x) * kRowsPerSum;
  int64_t left = s.columns - column;
  bool whole = (kWhole || s.columns % kPerThread == 0) && left > 0;
  int64_t rows = m.to_rows - first;
  int end = rows < kRowsPerSum ? static_cast<int>(rows) : kRowsPerSum;
  if (kWhole && !whole) end = 0;
  float sum[kPerThread] = {};
  AmaxPart seen;
  Vector next[kIn];  // the next row's vectors, while this row is computed
  auto load_next = [&](int64_t row) {
    ONNX_FP8_UNROLL
    for (int i = 0; i < kIn; ++i) {
      if (row >= s.rows) continue;
      next[i] = LoadVector4(Known<kWhole>(s.in[i]), row * s.columns + column);
    }
  };
  if (whole) load_next(first + line);
  for (int r = line; r < end; r += kTileRows) {
    if (!kWhole && first + r >= s.rows) left = 0, whole = false;
    int64_t at = (first + r) * s.columns + column;
    float x[kIn][kPerThread] = {}, y[kPerThread];
    if (kWhole || whole) {
      Vector raw[kIn];
      for (int i = 0; i < kIn; ++i) raw[i] = next[i];
      if (r + kTileRows < kRowsPerSum) load_next(first + r + kTileRows);
      for (int i = 0; i < kIn; ++i) {
        ToFloats(KnownStorage<kWhole>(s.in[i].storage), raw[i], x[i]);
      }
    } else {
      for (int i = 0; i < kIn; ++i) {
        for (int k = 0; k < kPerThread; ++k) {
          if (k < left) x[i][k] = Load(s.in[i], at + k);
        }
      }
    }
    for (int k = 0; k < kPerThread; ++k) {
      float in[kIn], of_one[1];
      for (int i = 0; i < kIn; ++i) in[i] = x[i][k];
      f(in, of_one);
      y[k] = of_one[0];
      if (kWhole || k < left) sum[k] += y[k];
    }
    if (!IsRead(out)) continue;
    if constexpr (kWhole) {
      if (out.HasFloats()) {
        Store4(Known<true>(s.out.y), at, y);
      } else {
        Round4(Storage::kBFloat16, y);
      }
      if (measures) seen.Add4(y);
      if (!out.HasCodes()) continue;
      uint32_t word = out.Codes(y);
      *reinterpret_cast<uint32_t*>(s.out.q + at) = word;
      codes[r * kStride + lane] = word;
      continue;
    }
    if (whole) {
      Store4(out, at, y);
      seen.Add4(y);
    } else {
      for (int k = 0; k < kPerThread; ++k) {
        if (k < left) seen.Add(y[k] = Store(out, at + k, y[k]));
      }
    }
    int64_t to_left = m.to_columns - column;
    if (!out.HasCodes() || to_left <= 0) continue;
    int inside = static_cast<int>(left < kPerThread ? left : kPerThread);
    uint32_t word = CodesOf(out, inside, y);
    StoreCodes(out, (first + r) * m.to_columns + column, to_left, word);
    codes[r * kStride + lane] = word;
  }
  seen.AddOfBlock(out.Amax());
  if (s.out.turns && out.writes) {
    int64_t begin = static_cast<int64_t>(blockIdx.y) * kTileColumns;
    int64_t words = (m.to_columns - begin) / kCodes;
    WriteTransposed(s.out, codes, kStride, first, kRowsPerSum, begin,
                    static_cast<int>(words < kTileLanes ? words : kTileLanes));
  }
  for (int k = 0; k < kPerThread; ++k) {
    sums[line][lane * kPerThread + k] = sum[k];
  }
  __syncthreads();
  int own = threadIdx.x;  // a column of the tile
  int64_t to = static_cast<int64_t>(blockIdx.y) * kTileColumns + own;
  if (own >= kTileColumns || to >= s.columns) return;
  float total = 0;
  for (int r = 0; r < kTileRows; ++r) total += sums[r][own];
  s.partial[static_cast<int64_t>(blockIdx.x) * s.columns + to] = total;
}

__global__ void __launch_bounds__(kThreads)
    AddPartialsKernel(const float* partial, int64_t parts, int64_t columns,
                      FloatsOut out) {
  int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  float total = 0, lost = 0;  // Kahan's sum
  for (int64_t i = 0; i < parts; ++i) {
    float x = partial[i * columns + column] - lost;
    float sum = total + x;
    lost = (sum - total) - x;
    total = sum;
  }
  Store(out, column, total);
}

}  // namespace

// Returns whether all rows consist of whole vectors, the codes have no padding,
// and bfloat16 is the dtype of all tensors and of the numbers that are encoded.
template <int kIn>
bool IsWhole(const RowSums<kIn>& s) {
  bool narrow = AreBFloat16(s.in) && AreBFloat16({AsOperand(s.out.y)});
  if (s.out.q || !s.out.y.data) {
    narrow = narrow && s.out.rounded == Storage::kBFloat16;
  }
  return narrow && s.columns % kPerThread == 0 && !Pads(s.out.sizes);
}

// Sets out[j] to the sum of partial[i][j] over all i. No column is no work.
inline void AddPartials(const KernelContext& ctx, const float* partial,
                        int64_t parts, int64_t columns, FloatsOut out) {
  if (columns == 0 || !out.data) return;
  Launch(AddPartialsKernel, static_cast<unsigned>(DivideUp(columns, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), partial, parts, columns, out);
}

// The rows of operand 0.
struct SummedRows {
  int64_t rows, columns;

  // Partial sums per column.
  int64_t parts() const { return DivideUp(rows, kRowsPerSum); }
  size_t bytes() const {
    return static_cast<size_t>(parts() * columns) * sizeof(float);
  }
};

// Errors: a scalar.
inline SummedRows SummedRowsOf(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() > 0, "[", ctx.Where(), "] expected rows, got a scalar");
  int64_t columns = x.dim(-1);
  return {columns > 0 ? x.size() / columns : 0, columns};
}

// The workspace of MapWithRowSums.
inline size_t RowSumsWorkspace(KernelContext& ctx) {
  return SummedRowsOf(ctx).bytes();
}

// Result 0 = f of operands 0 … kIn-1, all of one shape; result 1 is the sum of
// f over all axes but the last, before result 0 is rounded. f is as in
// ForElements. Errors: MapElements'; ResultTo's; a scalar.
template <typename F, int kIn = 2>
void MapWithRowSums(KernelContext& ctx, F f) {
  const Shape shape = Operand(ctx, 0).shape();
  const SummedRows sizes = SummedRowsOf(ctx);
  RowSums<kIn> s;
  s.columns = sizes.columns;
  s.rows = sizes.rows;
  for (int i = 0; i < kIn; ++i) {
    auto k = static_cast<size_t>(i);
    CheckOperand(ctx, k, DType::kFloat, shape);
    s.in[i] = FloatsOf(ctx, k);
  }
  s.out = ResultTo(ctx, 0, shape);
  s.out.turns = s.out.q_transposed;
  FloatsOut sums = FloatsTo(ctx, 1, {s.columns});
  int64_t parts = sizes.parts();
  s.partial = static_cast<float*>(ctx.Workspace(sizes.bytes()));
  dim3 grid(
      static_cast<unsigned>(parts),
      static_cast<unsigned>(DivideUp(s.out.sizes.to_columns, kTileColumns)));
  WriteResult(ctx, shape, s.out, [&] {
    if (parts == 0) return;
    Launch(
        IsWhole(s) ? RowSumsKernel<true, F, kIn> : RowSumsKernel<false, F, kIn>,
        grid, kTileRows * kTileLanes, 0, QueueOf(ctx).stream(), s, f);
  });
  AddPartials(ctx, s.partial, parts, s.columns, sums);
}

}  // namespace onnx_fp8::cuda
