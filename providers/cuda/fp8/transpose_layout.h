// SPDX-License-Identifier: Apache-2.0
//
// A tile of 128 x 128 elements that a block of threads encodes, and whose
// transpose it writes. A warp holds 8 rows, and a thread groups of four
// neighboring rows, whose codes are words of the transpose. The block can also
// sum the columns of the tile: first each thread adds the rows that it holds,
// then the block adds the sums of its threads, always in the same order.
#pragma once

#include <cstdint>

#include "providers/cuda/core/column_parts.h"
#include "providers/cuda/core/transpose_tile.h"
#include "providers/cuda/fp8/fragment.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {

inline constexpr int kTransposeTileWarps = 16;

// The layout of a thread's fragment: neighboring rows of the same columns.
template <Storage kStorage>
struct TransposeLayout {
  static constexpr int kAcross =
      kTransposeSide / kVectorWidth<kStorage>;  // lanes
  static constexpr int kWordsAcross = kVectorWidth<kStorage> / kCodes;
  static constexpr int kLines = kVectors<kStorage> / kCodes;

  int64_t at, columns;
  int row, column;  // in the tile
  int rows, end;    // left of x from there on

  __device__ TransposeLayout(int64_t all_rows, int64_t all_columns,
                             int64_t first_row, int64_t first_column)
      : columns(all_columns) {
    int lane = threadIdx.x % 32;
    row = RowOf(0, lane);
    column = lane % kAcross * kVectorWidth<kStorage>;
    at = (first_row + row) * columns + first_column + column;
    rows = Left(all_rows - first_row) - row;
    end = Left(columns - first_column) - column;
  }
  // The row of vector v of a lane.
  __device__ static int RowOf(int v, int lane) {
    int warp = threadIdx.x / 32;
    return (warp * (32 / kAcross) + lane / kAcross) * kVectors<kStorage> + v;
  }
  __device__ VectorBounds operator()(int v) const {
    return {at + v * columns, 0, v < rows ? end : 0};
  }
  // As much of what is left of a matrix as a tile may have.
  __device__ static int Left(int64_t n) {
    return static_cast<int>(n < kTransposeSide ? n : kTransposeSide);
  }
};

// 0 for codes of elements that do not exist.
template <Storage kStorage>
__device__ void ClearOutside(const VectorBounds& p,
                             VectorCodes<kStorage>& codes) {
  if (IsWhole<kStorage>(p)) return;
  ONNX_FP8_UNROLL
  for (int k = 0; k < kVectorWidth<kStorage>; ++k) {
    if (k >= p.end) codes.words[k / 4] &= ~(0xFFu << 8 * (k % 4));
  }
}

// Element i: columns 4 · c + i of a tile, in words of four rows each; as in
// transpose_tile.h.
using TileOfWords = uint32_t[kTileWords][kTileWords + 1];

// Puts the codes of four rows, the thread's group `line`, into the tile.
template <Storage kStorage>
__device__ void PutTransposed(const VectorCodes<kStorage> (&codes)[kCodes],
                              const TransposeLayout<kStorage>& in, int line,
                              TileOfWords* tile) {
  ONNX_FP8_UNROLL
  for (int w = 0; w < TransposeLayout<kStorage>::kWordsAcross; ++w) {
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      tile[i][in.column / kCodes + w][in.row / kCodes + line] =
          ByteOf(codes[0].words[w], i) | ByteOf(codes[1].words[w], i) << 8 |
          ByteOf(codes[2].words[w], i) << 16 |
          ByteOf(codes[3].words[w], i) << 24;
    }
  }
}

// Encodes what a thread holds, and puts it into the tile. factors_of(v, own)
// sets the factors of row v, or leaves the factors of the row before.
template <Storage kStorage, typename FactorsOf>
__device__ void EncodeIntoTile(bool e4m3, const TransposeLayout<kStorage>& in,
                               const Vector (&x)[kVectors<kStorage>],
                               bool special, const FactorsOf& factors_of,
                               TileOfWords* tile) {
  float own[kVectorWidth<kStorage>] = {};
  auto factor = [&](int k) { return own[k]; };
  ONNX_FP8_UNROLL
  for (int line = 0; line < TransposeLayout<kStorage>::kLines; ++line) {
    VectorCodes<kStorage> codes[kCodes];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      int v = line * kCodes + i;
      factors_of(v, own);
      codes[i] = e4m3 ? CodesOfVector<kStorage, true>(x[v], factor, special)
                      : CodesOfVector<kStorage, false>(x[v], factor, special);
    }
    PutTransposed<kStorage>(codes, in, line, tile);
  }
}

// The same where a column has one factor: factors[k] belongs to the thread's
// column k.
template <Storage kStorage>
__device__ void EncodeColumnsIntoTile(bool e4m3,
                                      const TransposeLayout<kStorage>& in,
                                      const Vector (&x)[kVectors<kStorage>],
                                      bool special, const float* factors,
                                      TileOfWords* tile) {
  auto factors_of = [&](int v, float(&own)[kVectorWidth<kStorage>]) {
    if (v > 0) return;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kVectorWidth<kStorage>; ++k) {
      own[k] = k < in.end ? factors[k] : 0.0f;
    }
  };
  EncodeIntoTile<kStorage>(e4m3, in, x, special, factors_of, tile);
}

// The transpose (to_columns, to_rows) of the tile at `row` and `column`. Writes
// 16 codes of a column of the transpose at a time: 8 lanes write one column of
// the tile, and the columns of a warp's lanes are 4 apart.
__device__ inline void StoreTransposedTile(uint8_t* q_transposed,
                                           int64_t to_rows, int64_t to_columns,
                                           int64_t row, int64_t column,
                                           const TileOfWords* tile) {
  constexpr int kLanes = kTileWords / kCodes, kAtOnce = 32 / kLanes;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int word = lane % kLanes * kCodes;
  int left = static_cast<int>(to_rows - row < kTransposeSide ? to_rows - row
                                                             : kTransposeSide);
  bool together = to_rows % (kCodes * kCodes) == 0 &&
                  reinterpret_cast<uintptr_t>(q_transposed) % 16 == 0;
  ONNX_FP8_UNROLL
  for (int turn = 0; turn < kTransposeSide / (kAtOnce * kTransposeTileWarps);
       ++turn) {
    int group = turn * kTransposeTileWarps + warp;
    int i = group % kCodes;
    int c = group / kCodes * kAtOnce + lane / kLanes;
    int64_t its = column + c * kCodes + i;
    if (its >= to_columns) continue;
    uint8_t* to = q_transposed + its * to_rows + row + word * kCodes;
    uint32_t words[kCodes];
    ONNX_FP8_UNROLL
    for (int j = 0; j < kCodes; ++j) words[j] = tile[i][c][word + j];
    if (together && word * kCodes < left) {
      *reinterpret_cast<uint4*>(to) =
          make_uint4(words[0], words[1], words[2], words[3]);
      continue;
    }
    ONNX_FP8_UNROLL
    for (int j = 0; j < kCodes; ++j) {
      if ((word + j) * kCodes < left) {
        reinterpret_cast<uint32_t*>(to)[j] = words[j];
      }
    }
  }
}

// ---- sums of columns

// A group is the rows that one thread holds. Each group has a sum of each
// column of the tile.
template <Storage kStorage>
inline constexpr int kRowGroups = kTransposeSide / kVectors<kStorage>;
struct TileOfSums {
  alignas(16) float sums[kRowGroups<Storage::kBFloat16>][kTransposeSide];
};

template <Storage kStorage>
__device__ void PutColumnSums(const Vector (&x)[kVectors<kStorage>],
                              const TransposeLayout<kStorage>& in,
                              TileOfSums& tile) {
  float sum[kVectorWidth<kStorage>];
  FloatsOfVector<kStorage>(x[0], sum);
  ONNX_FP8_UNROLL
  for (int v = 1; v < kVectors<kStorage>; ++v) {
    float more[kVectorWidth<kStorage>];
    FloatsOfVector<kStorage>(x[v], more);
    ONNX_FP8_UNROLL
    for (int k = 0; k < kVectorWidth<kStorage>; ++k) sum[k] += more[k];
  }
  auto* to = reinterpret_cast<float4*>(tile.sums[in.row / kVectors<kStorage>] +
                                       in.column);
  ONNX_FP8_UNROLL
  for (int k = 0; k < kVectorWidth<kStorage>; k += 4) {
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
