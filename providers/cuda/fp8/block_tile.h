// SPDX-License-Identifier: Apache-2.0
//
// A tile of a matrix has 128 columns. A warp holds 8 rows of it, and a lane
// vectors of neighboring columns. The block of threads measures the columns of
// the tile, or parts of them, and parts of its rows.
#pragma once

#include <cstdint>

#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/fragment.h"

namespace onnx_fp8::cuda {

// A tile's number in each direction.
struct Tile {
  int64_t down, across;
};
__device__ inline Tile TileOf(const Blocks& b, unsigned tile) {
  unsigned across = static_cast<unsigned>(DivideUp(b.columns, kTileColumns));
  return {tile / across, tile % across};
}

// Calls f(storage, tensor, tile, seen) for the tile of this block of threads,
// and adds to the tensor's amax what f has seen.
template <bool kNarrow, typename F>
__device__ void OnTile(const Many<Blocks>& many, const F& f) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, blockIdx.x - many.begin[tensor]);
  AmaxPart seen;
  WithStorage<kNarrow>(b.x.storage,
                       [&](auto storage) { f(storage, b, tile, seen); });
  seen.AddOfBlock(b.amax);
}

// The layout of a thread's fragment in a tile.
template <Storage kStorage>
struct TileLayout {
  static constexpr int kAcross =
      kTileColumns / kVectorWidth<kStorage>;  // lanes
  static constexpr int kDown = 32 / kAcross;  // rows of a warp's vectors

  int64_t at, step;  // of vector 0, and to the next one
  int row, column;   // of vector 0 in the tile
  int rows, end;     // rows and columns from there to the end of x

  __device__ TileLayout(const Blocks& b, int64_t first_row,
                        int64_t first_column) {
    int lane = threadIdx.x % 32;
    row = RowOf(0, lane);
    column = lane % kAcross * kVectorWidth<kStorage>;
    step = kDown * b.columns;
    at = (first_row + row) * b.columns + first_column + column;
    rows = Left(b.rows - first_row) - row;
    end = Left(b.columns - first_column) - column;
  }

  // The row of vector v of a lane.
  __device__ static int RowOf(int v, int lane) {
    int warp = threadIdx.x / 32;
    return warp * kRowsOfWarp + v * kDown + lane / kAcross;
  }
  __device__ VectorBounds operator()(int v) const {
    return {at + v * step, 0, v * kDown < rows ? end : 0};
  }

  // As much of what is left of x as a tile may have.
  __device__ static int Left(int64_t n) {
    return static_cast<int>(n < kTileColumns ? n : kTileColumns);
  }
};

// What each warp has seen of each column of a tile.
using ColumnPeaks = uint32_t[kTileColumns];

template <Storage kStorage>
__device__ void StorePeaks(Vector own, ColumnPeaks* peaks) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  constexpr int kAcross = kTileColumns / kVectorWidth<kStorage>;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  ONNX_FP8_UNROLL
  for (int lanes = 16; lanes >= kAcross; lanes /= 2) {
    ONNX_FP8_UNROLL
    for (int w = 0; w < kVectorWords; ++w) {
      uint32_t other = __shfl_xor_sync(kAll, own.words[w], lanes);
      own.words[w] = Larger<kStorage>(own.words[w], other);
    }
  }
  if (lane < kAcross) {
    *reinterpret_cast<uint4*>(&peaks[warp][lane * kVectorWords]) =
        make_uint4(own.words[0], own.words[1], own.words[2], own.words[3]);
  }
}

// The largest of what `warps` warps have seen of a column, as a float's bits.
template <Storage kStorage>
__device__ uint32_t PeakOfColumn(const ColumnPeaks* peaks, int warps,
                                 int column) {
  constexpr int kInWord = kVectorWidth<kStorage> / kVectorWords;
  uint32_t peak = 0;
  ONNX_FP8_KEEP_LOOP
  for (int warp = 0; warp < warps; ++warp) {
    peak = Larger<kStorage>(peak, peaks[warp][column / kInWord]);
  }
  if (kInWord == 1) return peak;
  return FloatBits<kStorage>(column % 2 ? peak >> 16 : peak & 0xFFFFu);
}

// For tiles of 128 x 128 in parts of 2^shift warps' rows: the factor of each
// part of each column, and its scale. The block's threads call it after they
// have stored what they have seen.
template <Storage kStorage>
__device__ void StoreFactors(const Blocks& b, Tile tile,
                             const ColumnPeaks* peaks, float* factors) {
  int thread = threadIdx.x, warps = 1 << b.shift;
  int part = thread / kTileColumns, its_column = thread % kTileColumns;
  if (part << b.shift >= kSquareWarps) return;
  float factor =
      BlockFactor(b.format, __uint_as_float(PeakOfColumn<kStorage>(
                                peaks + (part << b.shift), warps, its_column)));
  factors[thread] = factor;
  int64_t down = tile.down * (kSquareWarps >> b.shift) + part;
  int64_t column = tile.across * kTileColumns + its_column;
  if (b.scales && down < b.down && column < b.columns) {
    StoreScale(b.format, b.scales, ScaleAt(b, down, column), factor);
  }
}

// The factors of this warp's rows, for each column of the tile.
__device__ inline const float* FactorsOfWarp(const Blocks& b,
                                             const float* factors) {
  return factors + (threadIdx.x / 32 >> b.shift) * kTileColumns;
}

// ---- parts of rows, of which each belongs to neighboring lanes

// The factor of each vector that a thread holds, and the scales of the parts.
// b.shift: 2^shift lanes hold a part. The tile begins at row `first_row` and is
// number `across` in it. Layout::RowOf(v, lane) is the row in the tile of
// vector v of a lane. Lane i computes the factor of the warp's part i.
template <Storage kStorage, typename Layout>
__device__ void FactorsOfRowParts(const Blocks& b,
                                  const Vector (&x)[kVectors<kStorage>],
                                  int64_t first_row, int64_t across,
                                  AmaxPart& seen,
                                  float (&factors)[kVectors<kStorage>]) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  constexpr int kCount = kVectors<kStorage>;
  uint32_t peaks[kCount];
  FinitePeaks<kStorage>(x, seen, peaks);
  LargestOfLanes(1 << b.shift, peaks);
  int lane = threadIdx.x % 32;
  int groups_shift = 5 - b.shift, groups = 1 << groups_shift;  // of a vector
  int vector = lane >> groups_shift;
  int leader = (lane & (groups - 1)) << b.shift;  // the part's first lane
  uint32_t peak = 0;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    uint32_t its = __shfl_sync(kAll, peaks[v], leader);
    if (v == vector) peak = its;
  }
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  int64_t row = first_row + Layout::RowOf(vector, leader);
  int in_row =
      leader % Layout::kAcross >> b.shift;  // the part in the tile's row
  int64_t part = (across * (Layout::kAcross >> b.shift)) + in_row;
  if (b.scales && vector < kCount && row < b.rows && part < b.across) {
    StoreScale(b.format, b.scales, row * b.across + part, factor);
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    factors[v] =
        __shfl_sync(kAll, factor, (v << groups_shift) + (lane >> b.shift));
  }
}

}  // namespace onnx_fp8::cuda
