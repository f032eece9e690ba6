// SPDX-License-Identifier: Apache-2.0
//
// QuantizeColumns writes the transpose of the codes; each column, or each part
// of a column, has a scale. QuantizeBlockTranspose gives a scale to each row
// and each column of x, or to each part of a row and of a column; it writes the
// codes by rows, and the transpose of the codes by columns. One kernel
// quantizes many tensors. Bytes and scales are the CPU's. Traffic: codes are
// written once. x is read once if parts of 32, 64 or 128 elements have a scale,
// and short columns too. Else it is read twice: whole rows and columns first
// raise their amaxes in memory, tile by tile of 128 x 256 elements, then each
// tile of 128 x 128 is encoded by its factors. Sums of x's columns come from
// the read in which it is encoded; their parts, a float for 128 elements, are
// written and read.
#include <span>
#include <vector>

#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/block_tile.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/fragment.h"
#include "providers/cuda/fp8/transpose_layout.h"
#include "providers/kernel.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

static_assert(kTransposeTileWarps == kSquareWarps &&
              kTransposeSide == kTileColumns);

template <Storage kStorage>
__device__ void QuantizeTransposedParts(const Blocks& b, Tile at,
                                        ColumnPeaks* peaks, float* factors,
                                        TileOfWords* tile, TileOfSums* sums,
                                        AmaxPart& seen) {
  TransposeLayout<kStorage> in(b.rows, b.columns, at.down * kTransposeSide,
                               at.across * kTransposeSide);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  if (sums) PutColumnSums<kStorage>(x, in, *sums);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), peaks);
  __syncthreads();
  StoreFactors<kStorage>(b, at, peaks, factors);
  __syncthreads();
  EncodeColumnsIntoTile<kStorage>(b.e4m3, in, x, seen.non_finite,
                                  FactorsOfWarp(b, factors) + in.column, tile);
}

// kSums: with the sums of x's columns.
template <bool kNarrow, bool kSums>
__global__ void __launch_bounds__(32 * kTransposeTileWarps)
    QuantizeTransposedPartsKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kTransposeTileWarps];
  __shared__ __align__(16) float factors[32 * kTransposeTileWarps];
  __shared__ TileOfWords words[kCodes];
  ColumnPeaks* to = peaks;
  float* factors_to = factors;
  TileOfWords* tile = words;
  TileOfSums* sums = nullptr;
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    sums = &of_tile;
  }
  OnTile<kNarrow>(many,
                  [&](auto storage, const Blocks& b, Tile at, AmaxPart& seen) {
                    QuantizeTransposedParts<decltype(storage)::value>(
                        b, at, to, factors_to, tile, sums, seen);
                    __syncthreads();
                    if constexpr (kSums) {
                      WriteColumnSums<kNarrow>(*sums, at.down * kTransposeSide,
                                               at.across * kTransposeSide,
                                               b.rows, b.columns, b.sums);
                    }
                    if (!b.q_transposed) return;
                    StoreTransposedTile(b.q_transposed, b.rows, b.columns,
                                        at.down * kTransposeSide,
                                        at.across * kTransposeSide, tile);
                  });
}

template <Storage kStorage>
__device__ void EncodeTransposedTile(const Blocks& b, Tile at,
                                     TileOfWords* tile, TileOfSums* sums) {
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  TransposeLayout<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  if (sums) PutColumnSums<kStorage>(x, in, *sums);
  int64_t known = -1;  // the part whose factors a thread has
  auto factors_of = [&](int v, float(&own)[kVectorWidth<kStorage>]) {
    int64_t part = (row + in.row + v) / b.block_rows;
    if (part == known || v >= in.rows) return;
    known = part;
    const float* from = b.factors + part * b.columns + column + in.column;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kVectorWidth<kStorage>; ++k) {
      own[k] = k < in.end ? from[k] : 0.0f;
    }
  };
  EncodeIntoTile<kStorage>(b.e4m3, in, x, b.amax->non_finite, factors_of, tile);
}

template <bool kNarrow, bool kSums>
__global__ void __launch_bounds__(32 * kTransposeTileWarps)
    EncodeTransposedKernel(Many<Blocks> many) {
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
    EncodeTransposedTile<decltype(storage)::value>(b, at, tile, sums);
  });
  __syncthreads();
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  StoreTransposedTile(b.q_transposed, b.rows, b.columns, row, column, tile);
  if constexpr (kSums) {
    WriteColumnSums<kNarrow>(*sums, row, column, b.rows, b.columns, b.sums);
  }
}

// Starts a kernel for the tensors that are kept in 16 bits, or not, and whose
// columns are summed, or not.
template <typename Its>
void StartTransposed(cudaStream_t stream, std::span<Blocks> all, bool narrow,
                     bool sums, void (*kernel)(Many<Blocks>), Its its) {
  StartBlocks(
      stream, all, kernel, 32 * kTransposeTileWarps, [=](const Blocks& b) {
        bool mine =
            its(b) && IsNarrow(b) == narrow && (b.sums != nullptr) == sums;
        return mine ? Tiles(b, kTransposeSide, kTransposeSide) : 0u;
      });
}

}  // namespace

void QuantizeTransposed(cudaStream_t stream, std::span<Blocks> all) {
  auto its = [](const Blocks& b) {
    return b.strategy == Strategy::kTransposedParts;
  };
  StartTransposed(stream, all, true, false,
                  QuantizeTransposedPartsKernel<true, false>, its);
  StartTransposed(stream, all, false, false,
                  QuantizeTransposedPartsKernel<false, false>, its);
  StartTransposed(stream, all, true, true,
                  QuantizeTransposedPartsKernel<true, true>, its);
  StartTransposed(stream, all, false, true,
                  QuantizeTransposedPartsKernel<false, true>, its);
}

void EncodeTransposed(cudaStream_t stream, std::span<Blocks> all) {
  auto its = [](const Blocks& b) {
    return b.q_transposed && b.strategy != Strategy::kTransposedParts;
  };
  StartTransposed(stream, all, true, false, EncodeTransposedKernel<true, false>,
                  its);
  StartTransposed(stream, all, false, false,
                  EncodeTransposedKernel<false, false>, its);
  StartTransposed(stream, all, true, true, EncodeTransposedKernel<true, true>,
                  its);
  StartTransposed(stream, all, false, true, EncodeTransposedKernel<false, true>,
                  its);
}

namespace {

// One tensor, described twice: by the blocks of its rows, and by the blocks of
// its columns.
struct BothOrientations {
  Blocks rows, columns;
};

// ---- whole rows and columns are measured first

constexpr int kStripDown = 2, kStripAcross = 2;  // tiles of a block of threads

// Raises the amaxes of the rows of a warp. Each lane has the peaks of its
// vectors.
template <Storage kStorage>
__device__ void StoreRowPeaks(const Blocks& rows, int64_t first_row,
                              uint32_t (&peaks)[kVectors<kStorage>]) {
  LargestOfLanes(TileLayout<kStorage>::kAcross, peaks);
  int lane = threadIdx.x % 32;
  if (lane % TileLayout<kStorage>::kAcross != 0) return;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    int64_t row = first_row + TileLayout<kStorage>::RowOf(v, lane);
    if (peaks[v] > 0 && row < rows.rows) {
      atomicMax(reinterpret_cast<uint32_t*>(rows.factors) + row, peaks[v]);
    }
  }
}

template <Storage kStorage>
__device__ void MeasureStrip(const BothOrientations& both, Tile strip,
                             ColumnPeaks (*peaks)[kWarps], AmaxPart& seen) {
  const Blocks& b = both.rows;
  Vector columns[kStripAcross] = {};
  ONNX_FP8_KEEP_LOOP
  for (int down = 0; down < kStripDown; ++down) {
    int64_t first_row = (strip.down * kStripDown + down) * kTileRows;
    uint32_t rows[kVectors<kStorage>] = {};
    ONNX_FP8_UNROLL
    for (int across = 0; across < kStripAcross; ++across) {
      int64_t first = (strip.across * kStripAcross + across) * kTileColumns;
      TileLayout<kStorage> in(b, first_row, first);
      Vector x[kVectors<kStorage>];
      LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
      Vector of_columns = FinitePeaksAcross<kStorage>(x, seen);
      ONNX_FP8_UNROLL
      for (int w = 0; w < kVectorWords; ++w) {
        columns[across].words[w] =
            Larger<kStorage>(columns[across].words[w], of_columns.words[w]);
      }
      uint32_t of_rows[kVectors<kStorage>];
      FinitePeaks<kStorage>(x, seen, of_rows);
      ONNX_FP8_UNROLL
      for (int v = 0; v < kVectors<kStorage>; ++v) {
        rows[v] = rows[v] > of_rows[v] ? rows[v] : of_rows[v];
      }
    }
    StoreRowPeaks<kStorage>(b, first_row, rows);
  }
  ONNX_FP8_UNROLL
  for (int across = 0; across < kStripAcross; ++across) {
    StorePeaks<kStorage>(columns[across], peaks[across]);
  }
  __syncthreads();
  int its_column = threadIdx.x;
  static_assert(32 * kWarps == kStripAcross * kTileColumns);
  int64_t column = strip.across * kStripAcross * kTileColumns + its_column;
  if (column >= b.columns) return;
  uint32_t peak = PeakOfColumn<kStorage>(peaks[its_column / kTileColumns],
                                         kWarps, its_column % kTileColumns);
  if (peak > 0) {
    atomicMax(reinterpret_cast<uint32_t*>(both.columns.factors) + column, peak);
  }
}

__device__ Tile StripOf(const Blocks& b, unsigned strip) {
  auto across =
      static_cast<unsigned>(DivideUp(b.columns, kStripAcross * kTileColumns));
  return {strip / across, strip % across};
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    MeasureBothKernel(Many<BothOrientations> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kStripAcross][kWarps];
  ColumnPeaks(*to)[kWarps] = peaks;
  int tensor = TensorOf(many, blockIdx.x);
  const BothOrientations& both = many.tensors[tensor];
  Tile strip = StripOf(both.rows, blockIdx.x - many.begin[tensor]);
  AmaxPart seen;
  WithStorage<kNarrow>(both.rows.x.storage, [&](auto storage) {
    MeasureStrip<decltype(storage)::value>(both, strip, to, seen);
  });
  seen.AddOfBlock(both.rows.amax);
}

// ---- codes

// The shared memory in which a block of threads encodes a tile.
struct EncodedTile {
  TileOfWords* words;
  TileOfSums* sums;  // null: nobody reads them
  // The kernel that measures parts needs these two.
  ColumnPeaks* peaks;
  float* factors;
};

// Writes the codes of the rows that a thread holds: factors[v] is the factor of
// row v.
template <Storage kStorage>
__device__ void EncodeRows(const Blocks& rows,
                           const TransposeLayout<kStorage>& in,
                           const Vector (&x)[kVectors<kStorage>], bool special,
                           const float (&factors)[kVectors<kStorage>]) {
  if (!rows.q) return;
  EncodeFragment<kStorage>(x, rows.e4m3, special, rows.q, rows.aligned, in,
                           [&](int v, int) { return factors[v]; });
}

template <Storage kStorage>
__device__ void EncodeWhole(const BothOrientations& both, int64_t row,
                            int64_t column, const EncodedTile& tile) {
  const Blocks& b = both.rows;
  TransposeLayout<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  float factors[kVectors<kStorage>];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    factors[v] = v < in.rows ? b.factors[row + in.row + v] : 0.0f;
  }
  if (tile.sums) PutColumnSums<kStorage>(x, in, *tile.sums);
  bool special = b.amax->non_finite;
  EncodeRows<kStorage>(b, in, x, special, factors);
  EncodeColumnsIntoTile<kStorage>(b.e4m3, in, x, special,
                                  both.columns.factors + column + in.column,
                                  tile.words);
}

template <Storage kStorage>
__device__ void EncodeParts(const BothOrientations& both, Tile at, int64_t row,
                            int64_t column, const EncodedTile& tile,
                            AmaxPart& seen) {
  const Blocks& b = both.rows;
  TransposeLayout<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  if (tile.sums) PutColumnSums<kStorage>(x, in, *tile.sums);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), tile.peaks);
  float factors[kVectors<kStorage>];
  FactorsOfRowParts<kStorage, TransposeLayout<kStorage>>(b, x, row, at.across,
                                                         seen, factors);
  EncodeRows<kStorage>(b, in, x, seen.non_finite, factors);
  __syncthreads();
  StoreFactors<kStorage>(both.columns, at, tile.peaks, tile.factors);
  __syncthreads();
  EncodeColumnsIntoTile<kStorage>(
      b.e4m3, in, x, seen.non_finite,
      FactorsOfWarp(both.columns, tile.factors) + in.column, tile.words);
}

// If kParts, the tensors are quantized in parts, and the kernel measures the
// parts. If kSums, it also writes the sums of x's columns.
template <bool kNarrow, bool kParts, bool kSums>
__global__ void __launch_bounds__(32 * kTransposeTileWarps, kNarrow ? 2 : 1)
    EncodeBothKernel(Many<BothOrientations> many) {
  __shared__ TileOfWords words[kCodes];
  EncodedTile tile = {words, nullptr, nullptr, nullptr};
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    tile.sums = &of_tile;
  }
  if constexpr (kParts) {
    __shared__ __align__(16) ColumnPeaks peaks[kTransposeTileWarps];
    __shared__ __align__(16) float factors[32 * kTransposeTileWarps];
    tile.peaks = peaks;
    tile.factors = factors;
  }
  unsigned block = kParts ? blockIdx.x : BlockFromEnd();
  int tensor = TensorOf(many, block);
  const BothOrientations& both = many.tensors[tensor];
  const Blocks& b = both.rows;
  Tile at = TileOf(b, block - many.begin[tensor]);
  int64_t row = at.down * kTransposeSide, column = at.across * kTransposeSide;
  AmaxPart seen;
  WithStorage<kNarrow>(b.x.storage, [&](auto storage) {
    constexpr Storage kStorage = decltype(storage)::value;
    if constexpr (kParts) {
      EncodeParts<kStorage>(both, at, row, column, tile, seen);
    } else {
      EncodeWhole<kStorage>(both, row, column, tile);
    }
  });
  __syncthreads();
  if (both.columns.q_transposed) {
    StoreTransposedTile(both.columns.q_transposed, b.rows, b.columns, row,
                        column, words);
  }
  if constexpr (kSums) {
    WriteColumnSums<kNarrow>(*tile.sums, row, column, b.rows, b.columns,
                             both.columns.sums);
  }
  if constexpr (kParts) seen.AddOfBlock(b.amax);
}

// ---- launches

// The kernel's workspace: factors of rows and of columns, and parts of sums.
size_t FactorBytes(const Blocks& b) {
  return static_cast<size_t>(FactorsOf(b)) * sizeof(float);
}

size_t WorkspaceOfBothOrientations(const KernelContext& ctx,
                                   const BothOrientations& both) {
  return FactorBytes(both.rows) + FactorBytes(both.columns) +
         ColumnSumsBytes(ctx);
}

size_t BytesOfBothOrientations(KernelContext& ctx) {
  return WorkspaceOfBothOrientations(
      ctx, {BlocksOf(ctx, false), BlocksOf(ctx, true)});
}

BothOrientations BothOrientationsOf(KernelContext& ctx) {
  BothOrientations both = {BlocksOf(ctx, false), BlocksOf(ctx, true)};
  auto* memory =
      static_cast<char*>(ctx.Workspace(WorkspaceOfBothOrientations(ctx, both)));
  auto take = [&](size_t bytes) {
    auto* taken = reinterpret_cast<float*>(memory);
    memory += bytes;
    return bytes > 0 ? taken : nullptr;
  };
  both.rows.factors = take(FactorBytes(both.rows));
  both.columns.factors = take(FactorBytes(both.columns));
  both.columns.sums = take(ColumnSumsBytes(ctx));
  return both;
}

// Starts a kernel for the tensors of that strategy, with `blocks_of` blocks
// each.
template <typename BlocksOfTensor>
void Start(cudaStream_t stream, std::span<BothOrientations> all,
           Strategy strategy, bool narrow,
           void (*kernel)(Many<BothOrientations>), int threads,
           const BlocksOfTensor& blocks_of) {
  auto its_blocks = [&](const BothOrientations& both) {
    bool its = both.rows.strategy == strategy && IsNarrow(both.rows) == narrow;
    return its ? blocks_of(both) : 0u;
  };
  ForMany(all, its_blocks, [&](const Many<BothOrientations>& many) {
    Launch(kernel, many.blocks, threads, 0, stream, many);
  });
}

template <bool kParts>
void StartEncoding(cudaStream_t stream, std::span<BothOrientations> all) {
  auto start = [&](bool narrow, bool sums,
                   void (*kernel)(Many<BothOrientations>)) {
    Start(stream, all, kParts ? Strategy::kBothParts : Strategy::kBothWhole,
          narrow, kernel, 32 * kTransposeTileWarps,
          [sums](const BothOrientations& both) {
            bool its = (both.columns.sums != nullptr) == sums;
            return its ? Tiles(both.rows, kTransposeSide, kTransposeSide) : 0u;
          });
  };
  start(true, false, EncodeBothKernel<true, kParts, false>);
  start(false, false, EncodeBothKernel<false, kParts, false>);
  start(true, true, EncodeBothKernel<true, kParts, true>);
  start(false, true, EncodeBothKernel<false, kParts, true>);
}

void QuantizeBothOrientations(std::span<KernelContext> nodes) {
  std::vector<BothOrientations> all;
  std::vector<Blocks> each;
  for (KernelContext& ctx : nodes) {
    const BothOrientations& both = all.emplace_back(BothOrientationsOf(ctx));
    each.push_back(both.rows);
    each.push_back(both.columns);
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  ClearFactors(stream, each);
  for (bool narrow : {true, false}) {
    Start(stream, all, Strategy::kBothWhole, narrow,
          narrow ? MeasureBothKernel<true> : MeasureBothKernel<false>,
          32 * kWarps, [](const BothOrientations& both) {
            return Tiles(both.rows, kStripDown * kTileRows,
                         kStripAcross * kTileColumns);
          });
  }
  StartEncoding<true>(stream, all);
  MakeFactors(stream, each);
  StartEncoding<false>(stream, all);
  for (size_t i = 0; i < nodes.size(); ++i) {
    AddColumnSums(nodes[i], all[i].columns.sums);
  }
}

void QuantizeBlockTranspose(KernelContext& ctx) {
  QuantizeBothOrientations({&ctx, 1});
}

}  // namespace

void RegisterQuantizeBlockTranspose(KernelRegistry& r) {
  r.Add("QuantizeBlockTranspose", QuantizeBlockTranspose,
        {.own_amaxes = 1,
         .narrow_in = {0},
         .workspace = BytesOfBothOrientations,
         .many = QuantizeBothOrientations},
        kDomain);
}

}  // namespace onnx_fp8::cuda
