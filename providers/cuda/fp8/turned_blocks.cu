// SPDX-License-Identifier: Apache-2.0
//
// QuantizeColumns. Traffic: x is read once and q is written once; but x is read
// twice where a scale belongs to a long column or to a part of a column that is
// none of 32, 64 or 128.
#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_peaks.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/fp8/turned_tile.h"

namespace onnx_fp8::cuda {
namespace {

static_assert(kTurnedWarps == kSquareWarps && kTransposeSide == kTileColumns);

// Encodes what a thread holds, and puts it into the tile. factors_of(v, own)
// sets the factors of row v, or leaves those of the row before.
template <Kept kKept, typename FactorsOf>
__device__ void EncodeTurned(const Blocks& b, const Group<kKept>& in,
                             const Vector (&x)[kVectors<kKept>], bool special,
                             const FactorsOf& factors_of, TileOfWords* tile) {
  float own[kWidth<kKept>] = {};
  auto factor = [&](int k) { return own[k]; };
  ONNX_FP8_UNROLL
  for (int line = 0; line < Group<kKept>::kLines; ++line) {
    HeldCodes<kKept> codes[kCodes];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      int v = line * kCodes + i;
      factors_of(v, own);
      codes[i] = b.e4m3 ? CodesOfVector<kKept, true>(x[v], factor, special)
                        : CodesOfVector<kKept, false>(x[v], factor, special);
    }
    PutTurned<kKept>(codes, in, line, tile);
  }
}

template <Kept kKept>
__device__ void QuantizeTurnedParts(const Blocks& b, Tile at,
                                    ColumnPeaks* peaks, float* factors,
                                    TileOfWords* tile, AmaxPart& seen) {
  Group<kKept> in(b.rows, b.columns, at.down * kTransposeSide,
                  at.across * kTransposeSide);
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  StorePeaks<kKept>(FinitePeaksAcross<kKept>(x, seen), peaks);
  __syncthreads();
  StoreFactors<kKept>(b, at, peaks, factors);
  __syncthreads();
  const float* from = FactorsOfWarp(b, factors) + in.column;
  auto factors_of = [&](int v, float(&own)[kWidth<kKept>]) {
    if (v > 0) return;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kKept>; ++k) own[k] = from[k];
  };
  EncodeTurned<kKept>(b, in, x, seen.non_finite, factors_of, tile);
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kTurnedWarps)
    QuantizeTurnedPartsKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kTurnedWarps];
  __shared__ __align__(16) float factors[32 * kTurnedWarps];
  __shared__ TileOfWords words[kCodes];
  ColumnPeaks* to = peaks;
  float* factors_to = factors;
  TileOfWords* tile = words;
  OnTile<kNarrow>(
      many, [&](auto kept, const Blocks& b, Tile at, AmaxPart& seen) {
        QuantizeTurnedParts<decltype(kept)::value>(b, at, to, factors_to, tile,
                                                   seen);
        __syncthreads();
        if (!b.q_turned) return;
        WriteTurned(b.q_turned, b.rows, b.columns, at.down * kTransposeSide,
                    at.across * kTransposeSide, tile);
      });
}

template <Kept kKept>
__device__ void EncodeTurnedTile(const Blocks& b, Tile at, TileOfWords* tile) {
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  Group<kKept> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  int64_t known = -1;  // the part whose factors a thread has
  auto factors_of = [&](int v, float(&own)[kWidth<kKept>]) {
    int64_t part = (row + in.row + v) / b.block_rows;
    if (part == known || v >= in.rows) return;
    known = part;
    const float* from = b.factors + part * b.columns + column + in.column;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kKept>; ++k) {
      own[k] = k < in.end ? from[k] : 0.0f;
    }
  };
  EncodeTurned<kKept>(b, in, x, b.amax->non_finite, factors_of, tile);
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kTurnedWarps)
    EncodeTurnedKernel(Many<Blocks> many) {
  __shared__ TileOfWords words[kCodes];
  TileOfWords* tile = words;
  unsigned block = BlockFromEnd();
  int tensor = TensorOf(many, block);
  const Blocks& b = many.tensors[tensor];
  Tile at = TileOf(b, block - many.begin[tensor]);
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    EncodeTurnedTile<decltype(kept)::value>(b, at, tile);
  });
  __syncthreads();
  WriteTurned(b.q_turned, b.rows, b.columns, at.down * kTransposeSide,
              at.across * kTransposeSide, tile);
}

}  // namespace

void QuantizeTurned(cudaStream_t stream, std::span<Blocks> all) {
  for (bool narrow : {true, false}) {
    StartBlocks(stream, all,
                narrow ? QuantizeTurnedPartsKernel<true>
                       : QuantizeTurnedPartsKernel<false>,
                32 * kTurnedWarps, [narrow](const Blocks& b) {
                  bool its =
                      b.way == Way::kTurnedParts && IsNarrow(b) == narrow;
                  return its ? Tiles(b, kTransposeSide, kTransposeSide) : 0u;
                });
  }
}

void EncodeTurned(cudaStream_t stream, std::span<Blocks> all) {
  for (bool narrow : {true, false}) {
    StartBlocks(stream, all,
                narrow ? EncodeTurnedKernel<true> : EncodeTurnedKernel<false>,
                32 * kTurnedWarps, [narrow](const Blocks& b) {
                  bool its = b.q_turned && b.way != Way::kTurnedParts &&
                             IsNarrow(b) == narrow;
                  return its ? Tiles(b, kTransposeSide, kTransposeSide) : 0u;
                });
  }
}

}  // namespace onnx_fp8::cuda
