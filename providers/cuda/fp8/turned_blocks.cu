// SPDX-License-Identifier: Apache-2.0
//
// QuantizeColumns. Traffic: x is read once and q is written once; but x is read
// twice where a scale belongs to a long column or to a part of a column that is
// none of 32, 64 or 128. Sums of x's columns come from the read in which it is
// encoded; their parts, a float for 128 elements, are written and read.
#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_peaks.h"
#include "providers/cuda/fp8/column_sums.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/fp8/turned_tile.h"

namespace onnx_fp8::cuda {
namespace {

static_assert(kTurnedWarps == kSquareWarps && kTransposeSide == kTileColumns);

template <Storage kStorage>
__device__ void QuantizeTurnedParts(const Blocks& b, Tile at,
                                    ColumnPeaks* peaks, float* factors,
                                    TileOfWords* tile, TileOfSums* sums,
                                    AmaxPart& seen) {
  Group<kStorage> in(b.rows, b.columns, at.down * kTransposeSide,
                     at.across * kTransposeSide);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  if (sums) PutColumnSums<kStorage>(x, in, *sums);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), peaks);
  __syncthreads();
  StoreFactors<kStorage>(b, at, peaks, factors);
  __syncthreads();
  EncodeColumns<kStorage>(b.e4m3, in, x, seen.non_finite,
                          FactorsOfWarp(b, factors) + in.column, tile);
}

// kSums: with the sums of x's columns.
template <bool kNarrow, bool kSums>
__global__ void __launch_bounds__(32 * kTurnedWarps)
    QuantizeTurnedPartsKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kTurnedWarps];
  __shared__ __align__(16) float factors[32 * kTurnedWarps];
  __shared__ TileOfWords words[kCodes];
  ColumnPeaks* to = peaks;
  float* factors_to = factors;
  TileOfWords* tile = words;
  TileOfSums* sums = nullptr;
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    sums = &of_tile;
  }
  OnTile<kNarrow>(
      many, [&](auto storage, const Blocks& b, Tile at, AmaxPart& seen) {
        QuantizeTurnedParts<decltype(storage)::value>(b, at, to, factors_to,
                                                      tile, sums, seen);
        __syncthreads();
        if constexpr (kSums) {
          WriteColumnSums<kNarrow>(*sums, at.down * kTransposeSide,
                                   at.across * kTransposeSide, b.rows,
                                   b.columns, b.sums);
        }
        if (!b.q_turned) return;
        WriteTurned(b.q_turned, b.rows, b.columns, at.down * kTransposeSide,
                    at.across * kTransposeSide, tile);
      });
}

template <Storage kStorage>
__device__ void EncodeTurnedTile(const Blocks& b, Tile at, TileOfWords* tile,
                                 TileOfSums* sums) {
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  Group<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  if (sums) PutColumnSums<kStorage>(x, in, *sums);
  int64_t known = -1;  // the part whose factors a thread has
  auto factors_of = [&](int v, float(&own)[kWidth<kStorage>]) {
    int64_t part = (row + in.row + v) / b.block_rows;
    if (part == known || v >= in.rows) return;
    known = part;
    const float* from = b.factors + part * b.columns + column + in.column;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kStorage>; ++k) {
      own[k] = k < in.end ? from[k] : 0.0f;
    }
  };
  EncodeTurned<kStorage>(b.e4m3, in, x, b.amax->non_finite, factors_of, tile);
}

template <bool kNarrow, bool kSums>
__global__ void __launch_bounds__(32 * kTurnedWarps)
    EncodeTurnedKernel(Many<Blocks> many) {
  __shared__ TileOfWords words[kCodes];
  TileOfWords* tile = words;
  TileOfSums* sums = nullptr;
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    sums = &of_tile;
  }
  unsigned block = BlockFromEnd();
  int tensor = TensorOf(many, block);
  const Blocks& b = many.tensors[tensor];
  Tile at = TileOf(b, block - many.begin[tensor]);
  WithStorage<kNarrow>(b.x.storage, [&](auto storage) {
    EncodeTurnedTile<decltype(storage)::value>(b, at, tile, sums);
  });
  __syncthreads();
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  WriteTurned(b.q_turned, b.rows, b.columns, row, column, tile);
  if constexpr (kSums) {
    WriteColumnSums<kNarrow>(*sums, row, column, b.rows, b.columns, b.sums);
  }
}

// Starts a kernel for the tensors that are kept in 16 bits, or not, and whose
// columns are summed, or not.
template <typename Its>
void StartTurned(cudaStream_t stream, std::span<Blocks> all, bool narrow,
                 bool sums, void (*kernel)(Many<Blocks>), Its its) {
  StartBlocks(stream, all, kernel, 32 * kTurnedWarps, [=](const Blocks& b) {
    bool mine = its(b) && IsNarrow(b) == narrow && (b.sums != nullptr) == sums;
    return mine ? Tiles(b, kTransposeSide, kTransposeSide) : 0u;
  });
}

}  // namespace

void QuantizeTurned(cudaStream_t stream, std::span<Blocks> all) {
  auto its = [](const Blocks& b) { return b.way == Way::kTurnedParts; };
  StartTurned(stream, all, true, false, QuantizeTurnedPartsKernel<true, false>,
              its);
  StartTurned(stream, all, false, false,
              QuantizeTurnedPartsKernel<false, false>, its);
  StartTurned(stream, all, true, true, QuantizeTurnedPartsKernel<true, true>,
              its);
  StartTurned(stream, all, false, true, QuantizeTurnedPartsKernel<false, true>,
              its);
}

void EncodeTurned(cudaStream_t stream, std::span<Blocks> all) {
  auto its = [](const Blocks& b) {
    return b.q_turned && b.way != Way::kTurnedParts;
  };
  StartTurned(stream, all, true, false, EncodeTurnedKernel<true, false>, its);
  StartTurned(stream, all, false, false, EncodeTurnedKernel<false, false>, its);
  StartTurned(stream, all, true, true, EncodeTurnedKernel<true, true>, its);
  StartTurned(stream, all, false, true, EncodeTurnedKernel<false, true>, its);
}

}  // namespace onnx_fp8::cuda
