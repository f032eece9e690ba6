// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock where threads can hold the elements of a block (see Way).
// Traffic: x is read once and q is written once; but x is read twice where a
// scale belongs to a long column or to a long row, which is then mostly in a
// cache.
#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_peaks.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/fp8/row_parts.h"

namespace onnx_fp8::cuda {
namespace {

// ---- rows

template <int kRowWarps>
constexpr int kRowsAtOnce = std::max(kWarps / kRowWarps, 1);
template <int kRowWarps>
constexpr int kRowThreads = 32 * kRowWarps* kRowsAtOnce<kRowWarps>;

// The largest of what all warps of a row have. `parts` is the block's memory,
// a number for each warp.
template <int kRowWarps>
__device__ uint32_t LargestOfRow(uint32_t peak, uint32_t* parts) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  peak = __reduce_max_sync(kAll, peak);
  if constexpr (kRowWarps > 1) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) parts[warp] = peak;
    __syncthreads();
    const uint32_t* of_row = parts + warp / kRowWarps * kRowWarps;
    peak = __reduce_max_sync(kAll, lane < kRowWarps ? of_row[lane] : 0u);
  }
  return peak;
}

template <int kRowWarps, Storage kStorage>
__device__ void QuantizeRow(const Blocks& b, int64_t row, uint32_t* parts,
                            AmaxPart& seen) {
  constexpr int kThreadsOfRow = 32 * kRowWarps;
  int thread = threadIdx.x % kThreadsOfRow;
  // The row's vectors are aligned, whatever its length is: the first one and
  // the last one may be incomplete.
  int64_t start = row * b.columns;
  int lead = static_cast<int>(start) & (kWidth<kStorage> - 1);
  int end = row < b.rows ? lead + static_cast<int>(b.columns) : 0;
  auto place = [&](int v) -> Place {
    int i = (thread + v * kThreadsOfRow) * kWidth<kStorage>;
    return {start - lead + i, lead - i, end - i};
  };
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, place, x);
  uint32_t peak = LargestOfRow<kRowWarps>(FinitePeak<kStorage>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && thread == 0 && row < b.rows) {
    StoreScale(b.format, b.scales, row, factor);
  }
  if (!b.q) return;
  EncodeHeld<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, place,
                       [&](int, int) { return factor; });
}

template <int kRowWarps, bool kNarrow>
__global__ void __launch_bounds__(kRowThreads<kRowWarps>,
                                  kNarrow&& kRowWarps <= kWarps ? 4 : 1)
    QuantizeRowsKernel(Many<Blocks> many) {
  __shared__ uint32_t parts[kRowWarps * kRowsAtOnce<kRowWarps>];
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t row = block * kRowsAtOnce<kRowWarps> +
                static_cast<int>(threadIdx.x) / (32 * kRowWarps);
  uint32_t* shared = parts;
  AmaxPart seen;
  WithStorage<kNarrow>(b.x.storage, [&](auto storage) {
    QuantizeRow<kRowWarps, decltype(storage)::value>(b, row, shared, seen);
  });
  seen.AddOfBlock(b.amax);
}

// ---- long rows

constexpr int kLongWarps = 16;

template <Storage kStorage>
__device__ void QuantizeLongRow(const Blocks& b, int64_t row, uint32_t* parts,
                                AmaxPart& seen) {
  constexpr int kThreadsOfRow = 32 * kLongWarps;
  constexpr int kStep = kThreadsOfRow * kHeld;
  int thread = threadIdx.x;
  int64_t start = row * b.columns;
  int lead = static_cast<int>(start & (kWidth<kStorage> - 1));
  int64_t end = lead + b.columns;
  // What the threads hold from element `first` of the row's vectors on.
  auto places_from = [&](int64_t first) {
    int64_t left = end - first, origin = start - lead + first;
    int from = first == 0 ? lead : 0;
    int to = left < kStep ? static_cast<int>(left) : kStep;
    return [thread, origin, from, to](int v) -> Place {
      int i = (thread + v * kThreadsOfRow) * kWidth<kStorage>;
      return {origin + i, from - i, to - i};
    };
  };
  uint32_t peak = 0;
  ONNX_FP8_KEEP_LOOP
  for (int64_t first = 0; first < end; first += kStep) {
    Vector x[kVectors<kStorage>];
    LoadHeld<kStorage>(b.x.data, b.aligned, places_from(first), x);
    uint32_t own = FinitePeak<kStorage>(x, seen);
    peak = own > peak ? own : peak;
  }
  peak = LargestOfRow<kLongWarps>(peak, parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && thread == 0) StoreScale(b.format, b.scales, row, factor);
  if (!b.q) return;
  ONNX_FP8_KEEP_LOOP
  for (int64_t first = 0; first < end; first += kStep) {
    auto places = places_from(first);
    Vector x[kVectors<kStorage>];
    LoadHeld<kStorage>(b.x.data, b.aligned, places, x);
    EncodeHeld<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, places,
                         [&](int, int) { return factor; });
  }
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kLongWarps, kNarrow ? 2 : 1)
    QuantizeLongRowsKernel(Many<Blocks> many) {
  __shared__ uint32_t parts[kLongWarps];
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  int64_t row = blockIdx.x - many.begin[tensor];
  uint32_t* shared = parts;
  AmaxPart seen;
  WithStorage<kNarrow>(b.x.storage, [&](auto storage) {
    QuantizeLongRow<decltype(storage)::value>(b, row, shared, seen);
  });
  seen.AddOfBlock(b.amax);
}

// ---- tiles of 128 columns, of which each warp holds 8 rows

template <Storage kStorage>
__device__ void QuantizeRowParts(const Blocks& b, Tile tile, AmaxPart& seen) {
  int64_t first = tile.down * kTileRows;
  InTile<kStorage> in(b, first, tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  float factors[kVectors<kStorage>];
  FactorsOfRowParts<kStorage, InTile<kStorage>>(b, x, first, tile.across, seen,
                                                factors);
  if (!b.q) return;
  EncodeHeld<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                       [&](int v, int) { return factors[v]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    QuantizeRowPartsKernel(Many<Blocks> many) {
  OnTile<kNarrow>(
      many, [&](auto storage, const Blocks& b, Tile tile, AmaxPart& seen) {
        QuantizeRowParts<decltype(storage)::value>(b, tile, seen);
      });
}

template <Storage kStorage>
__device__ void QuantizeColumnParts(const Blocks& b, Tile tile,
                                    ColumnPeaks* peaks, float* factors,
                                    AmaxPart& seen) {
  using In = InTile<kStorage>;
  In in(b, tile.down * kTileColumns, tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), peaks);
  __syncthreads();
  StoreFactors<kStorage>(b, tile, peaks, factors);
  __syncthreads();
  if (!b.q) return;
  const float* from = FactorsOfWarp(b, factors) + in.column;
  float own[kWidth<kStorage>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kStorage>; ++k) own[k] = from[k];
  EncodeHeld<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                       [&](int, int k) { return own[k]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kSquareWarps)
    QuantizeColumnPartsKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kSquareWarps];
  __shared__ __align__(16) float factors[32 * kSquareWarps];
  ColumnPeaks* to = peaks;
  float* factors_to = factors;
  OnTile<kNarrow>(
      many, [&](auto storage, const Blocks& b, Tile tile, AmaxPart& seen) {
        QuantizeColumnParts<decltype(storage)::value>(b, tile, to, factors_to,
                                                      seen);
      });
}

template <Storage kStorage>
__device__ void QuantizeSquare(const Blocks& b, Tile tile, uint32_t* parts,
                               AmaxPart& seen) {
  InTile<kStorage> in(b, tile.down * kTileColumns, tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  uint32_t peak =
      LargestOfRow<kSquareWarps>(FinitePeak<kStorage>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && threadIdx.x == 0) {
    StoreScale(b.format, b.scales, tile.down * b.across + tile.across, factor);
  }
  if (!b.q) return;
  EncodeHeld<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                       [&](int, int) { return factor; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kSquareWarps)
    QuantizeSquaresKernel(Many<Blocks> many) {
  __shared__ uint32_t parts[kSquareWarps];
  uint32_t* shared = parts;
  OnTile<kNarrow>(
      many, [&](auto storage, const Blocks& b, Tile tile, AmaxPart& seen) {
        QuantizeSquare<decltype(storage)::value>(b, tile, shared, seen);
      });
}

// ---- whole columns

constexpr int kStripTiles = 2;  // that a block of threads measures

template <Storage kStorage>
__device__ void MeasureColumns(const Blocks& b, Tile strip, ColumnPeaks* peaks,
                               AmaxPart& seen) {
  Vector all = {};
  ONNX_FP8_KEEP_LOOP
  for (int i = 0; i < kStripTiles; ++i) {
    int64_t first = (strip.down * kStripTiles + i) * kTileRows;
    InTile<kStorage> in(b, first, strip.across * kTileColumns);
    Vector x[kVectors<kStorage>];
    LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
    Vector own = FinitePeaksAcross<kStorage>(x, seen);
    ONNX_FP8_UNROLL
    for (int w = 0; w < kWords; ++w) {
      all.words[w] = Larger<kStorage>(all.words[w], own.words[w]);
    }
  }
  StorePeaks<kStorage>(all, peaks);
  __syncthreads();
  int its_column = threadIdx.x;
  int64_t column = strip.across * kTileColumns + its_column;
  if (its_column >= kTileColumns || column >= b.columns) return;
  uint32_t peak = PeakOfColumn<kStorage>(peaks, kWarps, its_column);
  if (peak > 0) {
    atomicMax(reinterpret_cast<uint32_t*>(b.factors) + column, peak);
  }
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    ColumnPeaksKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kWarps];
  ColumnPeaks* to = peaks;
  OnTile<kNarrow>(
      many, [&](auto storage, const Blocks& b, Tile tile, AmaxPart& seen) {
        MeasureColumns<decltype(storage)::value>(b, tile, to, seen);
      });
}

template <Storage kStorage>
__device__ void EncodeColumns(const Blocks& b, Tile tile) {
  InTile<kStorage> in(b, tile.down * kTileRows, tile.across * kTileColumns);
  const float* from = b.factors + tile.across * kTileColumns + in.column;
  float own[kWidth<kStorage>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kStorage>; ++k)
    own[k] = k < in.end ? from[k] : 0.0f;
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  EncodeHeld<kStorage>(x, b.e4m3, b.amax->non_finite, b.q, b.aligned, in,
                       [&](int, int k) { return own[k]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    EncodeColumnsKernel(Many<Blocks> many) {
  unsigned block = BlockFromEnd();
  int tensor = TensorOf(many, block);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, block - many.begin[tensor]);
  WithStorage<kNarrow>(b.x.storage, [&](auto storage) {
    EncodeColumns<decltype(storage)::value>(b, tile);
  });
}

// Starts the kernels that hold elements, for tensors kept in 16 bits or as
// floats, but for the second pass over columns.
template <bool kNarrow>
void StartHeld(cudaStream_t stream, std::span<Blocks> all) {
  auto start_rows = [&]<int kRowWarps>() {
    constexpr int kAtOnce = kRowsAtOnce<kRowWarps>;
    StartBlocks(stream, all, QuantizeRowsKernel<kRowWarps, kNarrow>,
                kRowThreads<kRowWarps>, [](const Blocks& b) {
                  bool its = b.way == Way::kRows && b.warps == kRowWarps &&
                             IsNarrow(b) == kNarrow;
                  return its ? static_cast<unsigned>(DivideUp(b.rows, kAtOnce))
                             : 0u;
                });
  };
  start_rows.template operator()<1>();
  start_rows.template operator()<2>();
  start_rows.template operator()<4>();
  start_rows.template operator()<8>();
  start_rows.template operator()<16>();
  StartBlocks(stream, all, QuantizeLongRowsKernel<kNarrow>, 32 * kLongWarps,
              [](const Blocks& b) {
                bool its = b.way == Way::kLongRows && IsNarrow(b) == kNarrow;
                return its ? static_cast<unsigned>(b.rows) : 0u;
              });
  // Tiles of `rows` rows, one for each block of threads.
  auto start_tiles = [&](Way way, int64_t rows, int warps,
                         void (*kernel)(Many<Blocks>)) {
    StartBlocks(stream, all, kernel, 32 * warps, [way, rows](const Blocks& b) {
      bool its = b.way == way && IsNarrow(b) == kNarrow;
      return its ? Tiles(b, rows, kTileColumns) : 0u;
    });
  };
  start_tiles(Way::kRowParts, kTileRows, kWarps,
              QuantizeRowPartsKernel<kNarrow>);
  start_tiles(Way::kColumnParts, kTileColumns, kSquareWarps,
              QuantizeColumnPartsKernel<kNarrow>);
  start_tiles(Way::kSquares, kTileColumns, kSquareWarps,
              QuantizeSquaresKernel<kNarrow>);
  start_tiles(Way::kColumns, kStripTiles * kTileRows, kWarps,
              ColumnPeaksKernel<kNarrow>);
}

}  // namespace

void QuantizeHeld(cudaStream_t stream, std::span<Blocks> all) {
  StartHeld<true>(stream, all);
  StartHeld<false>(stream, all);
}

void EncodeColumns(cudaStream_t stream, std::span<Blocks> all) {
  for (bool narrow : {true, false}) {
    StartBlocks(stream, all,
                narrow ? EncodeColumnsKernel<true> : EncodeColumnsKernel<false>,
                32 * kWarps, [narrow](const Blocks& b) {
                  bool its =
                      b.q && b.way == Way::kColumns && IsNarrow(b) == narrow;
                  return its ? Tiles(b, kTileRows, kTileColumns) : 0u;
                });
  }
}

}  // namespace onnx_fp8::cuda
