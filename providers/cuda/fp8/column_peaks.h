// SPDX-License-Identifier: Apache-2.0
//
// Tiles of 128 columns whose columns are measured: a warp holds 8 rows of one,
// and a lane vectors of neighboring columns.
#pragma once

#include <cstdint>

#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/held.h"

namespace onnx_fp8::cuda {

// A tile's number in each direction.
struct Tile {
  int64_t down, across;
};
__device__ inline Tile TileOf(const Blocks& b, unsigned tile) {
  unsigned across = static_cast<unsigned>(DivideUp(b.columns, kTileColumns));
  return {tile / across, tile % across};
}

// Calls f(kept, tensor, tile, seen) for the tile of this block of threads, and
// adds to the tensor's amax what f has seen.
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

// Where a thread's elements are.
template <Storage kStorage>
struct InTile {
  static constexpr int kAcross = kTileColumns / kWidth<kStorage>;  // lanes
  static constexpr int kDown = 32 / kAcross;  // rows of a warp's vectors

  int64_t at, step;  // of vector 0, and to the next one
  int row, column;   // of vector 0 in the tile
  int rows, end;     // rows and columns from there to the end of x

  __device__ InTile(const Blocks& b, int64_t first_row, int64_t first_column) {
    int lane = threadIdx.x % 32;
    row = RowOf(0, lane);
    column = lane % kAcross * kWidth<kStorage>;
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
  __device__ Place operator()(int v) const {
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
  constexpr int kAcross = kTileColumns / kWidth<kStorage>;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  ONNX_FP8_UNROLL
  for (int lanes = 16; lanes >= kAcross; lanes /= 2) {
    ONNX_FP8_UNROLL
    for (int w = 0; w < kWords; ++w) {
      uint32_t other = __shfl_xor_sync(kAll, own.words[w], lanes);
      own.words[w] = Larger<kStorage>(own.words[w], other);
    }
  }
  if (lane < kAcross) {
    *reinterpret_cast<uint4*>(&peaks[warp][lane * kWords]) =
        make_uint4(own.words[0], own.words[1], own.words[2], own.words[3]);
  }
}

// The largest of what `warps` warps have seen of a column, as a float's bits.
template <Storage kStorage>
__device__ uint32_t PeakOfColumn(const ColumnPeaks* peaks, int warps,
                                 int column) {
  constexpr int kInWord = kWidth<kStorage> / kWords;
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

}  // namespace onnx_fp8::cuda
