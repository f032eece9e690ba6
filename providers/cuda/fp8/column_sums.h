// SPDX-License-Identifier: Apache-2.0
//
// Sums of the columns of a tile that a block of threads quantizes
// (turned_tile.h). A thread adds its rows, then the block adds those sums, both
// in a fixed order.
#pragma once

#include <cstdint>

#include "providers/cuda/core/column_parts.h"
#include "providers/cuda/fp8/turned_tile.h"

namespace onnx_fp8::cuda {

// For each group of rows that one thread holds, sums of the tile's columns.
template <Kept kKept>
inline constexpr int kRowGroups = kTransposeSide / kVectors<kKept>;
struct TileOfSums {
  alignas(16) float sums[kRowGroups<Kept::kBFloat16>][kTransposeSide];
};

template <Kept kKept>
__device__ void PutColumnSums(const Vector (&x)[kVectors<kKept>],
                              const Group<kKept>& in, TileOfSums& tile) {
  float sum[kWidth<kKept>];
  FloatsOfVector<kKept>(x[0], sum);
  ONNX_FP8_UNROLL
  for (int v = 1; v < kVectors<kKept>; ++v) {
    float more[kWidth<kKept>];
    FloatsOfVector<kKept>(x[v], more);
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kKept>; ++k) sum[k] += more[k];
  }
  auto* to = reinterpret_cast<float4*>(tile.sums[in.row / kVectors<kKept>] +
                                       in.column);
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kKept>; k += 4) {
    to[k / 4] = make_float4(sum[k], sum[k + 1], sum[k + 2], sum[k + 3]);
  }
}

// Writes the sums of the tile at `row` and `column` of a matrix, into a row for
// each row of tiles. All threads call it after they have put theirs.
template <bool kNarrow>
__device__ void WriteColumnSums(const TileOfSums& tile, int64_t row,
                                int64_t column, int64_t rows, int64_t columns,
                                float* to) {
  constexpr Kept kKept = kNarrow ? Kept::kBFloat16 : Kept::kFloat;
  int own = static_cast<int>(threadIdx.x);
  if (row >= rows || own >= kTransposeSide || column + own >= columns) return;
  float sum = 0;
  ONNX_FP8_UNROLL
  for (int g = 0; g < kRowGroups<kKept>; ++g) sum += tile.sums[g][own];
  to[row / kTransposeSide * columns + column + own] = sum;
}

// The workspace of a kernel that sums the columns of operand 0: a row for each
// row of tiles.
inline int64_t SumParts(const Tensor& x) {
  int64_t columns = x.rank() > 0 ? x.dim(-1) : 1;
  return columns > 0 ? DivideUp(x.size() / columns, kTransposeSide) : 0;
}
inline size_t ColumnSumsBytes(const KernelContext& ctx, size_t result) {
  if (!ctx.HasOut(result)) return 0;
  const Tensor& x = Operand(ctx, 0);
  return static_cast<size_t>(SumParts(x) * x.dim(-1)) * sizeof(float);
}

// Adds up what the tiles have written, into that result, if anybody reads it.
inline void AddColumnSums(KernelContext& ctx, size_t result,
                          const float* partial) {
  if (!ctx.HasOut(result)) return;
  const Tensor& x = Operand(ctx, 0);
  int64_t columns = x.dim(-1);
  AddColumnParts(
      ctx,
      {partial, FloatsTo(ctx, result, {columns}), {}, SumParts(x), columns});
}

}  // namespace onnx_fp8::cuda
