// SPDX-License-Identifier: Apache-2.0
//
// A block of threads that quantizes a tile (turned_tile.h) can also sum the
// columns of the tile. First each thread adds the rows that it holds. Then the
// block adds the sums of its threads, always in the same order.
#pragma once

#include <cstdint>

#include "providers/cuda/core/column_parts.h"
#include "providers/cuda/fp8/turned_tile.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {

// A group is the rows that one thread holds. Each group has a sum of each
// column of the tile.
template <Storage kStorage>
inline constexpr int kRowGroups = kTransposeSide / kVectors<kStorage>;
struct TileOfSums {
  alignas(16) float sums[kRowGroups<Storage::kBFloat16>][kTransposeSide];
};

template <Storage kStorage>
__device__ void PutColumnSums(const Vector (&x)[kVectors<kStorage>],
                              const Group<kStorage>& in, TileOfSums& tile) {
  float sum[kWidth<kStorage>];
  FloatsOfVector<kStorage>(x[0], sum);
  ONNX_FP8_UNROLL
  for (int v = 1; v < kVectors<kStorage>; ++v) {
    float more[kWidth<kStorage>];
    FloatsOfVector<kStorage>(x[v], more);
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kStorage>; ++k) sum[k] += more[k];
  }
  auto* to = reinterpret_cast<float4*>(tile.sums[in.row / kVectors<kStorage>] +
                                       in.column);
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kStorage>; k += 4) {
    to[k / 4] = make_float4(sum[k], sum[k + 1], sum[k + 2], sum[k + 3]);
  }
}

// Writes the sums of the tile at `row` and `column` of a matrix into the row of
// partial sums of its row of tiles. A barrier must follow PutColumnSums before
// the threads call it.
template <bool kNarrow>
__device__ void WriteColumnSums(const TileOfSums& tile, int64_t row,
                                int64_t column, int64_t rows, int64_t columns,
                                float* to) {
  constexpr Storage kStorage = kNarrow ? Storage::kBFloat16 : Storage::kFloat;
  int own = static_cast<int>(threadIdx.x);
  if (row >= rows || own >= kTransposeSide || column + own >= columns) return;
  float sum = 0;
  ONNX_FP8_UNROLL
  for (int g = 0; g < kRowGroups<kStorage>; ++g) sum += tile.sums[g][own];
  to[row / kTransposeSide * columns + column + own] = sum;
}

// Returns the number of rows of partial sums: one for each row of tiles of
// operand 0.
inline int64_t SumParts(const Tensor& x) {
  int64_t columns = x.rank() > 0 ? x.dim(-1) : 1;
  return columns > 0 ? DivideUp(x.size() / columns, kTransposeSide) : 0;
}
inline bool SumsColumns(const KernelContext& ctx) {
  size_t result = ColumnSumsOf(ctx.node());
  return result > 0 && ctx.HasOut(result);
}
// The bytes of all partial sums, which are the kernel's workspace; 0 if nobody
// reads the result with the sums.
inline size_t ColumnSumsBytes(const KernelContext& ctx) {
  if (!SumsColumns(ctx)) return 0;
  const Tensor& x = Operand(ctx, 0);
  return static_cast<size_t>(SumParts(x) * x.dim(-1)) * sizeof(float);
}

// Adds the partial sums and writes them into that result, if a node reads it.
inline void AddColumnSums(KernelContext& ctx, const float* partial) {
  if (!SumsColumns(ctx)) return;
  const Tensor& x = Operand(ctx, 0);
  int64_t columns = x.dim(-1);
  AddColumnParts(ctx, {partial,
                       FloatsTo(ctx, ColumnSumsOf(ctx.node()), {columns}),
                       {},
                       SumParts(x),
                       columns});
}

}  // namespace onnx_fp8::cuda
