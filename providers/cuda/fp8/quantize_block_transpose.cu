// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlockTranspose gives a scale to each row and each column of x, or to
// each part of a row and of a column. It writes the codes by rows, and the
// transpose of the codes by columns. One kernel quantizes many tensors. Bytes
// and scales equal QuantizeBlock's and QuantizeColumns'.
// Traffic: both codes are written once. In parts of 32, 64 or 128 elements x is
// read once. With whole rows and columns it is read twice: first each tile of
// 128 x 256 elements raises the amaxes of its rows and columns in memory, then
// each tile of 128 x 128 is encoded by its factors. Sums of columns are as in
// turned_blocks.cu.
#include <span>
#include <vector>

#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_peaks.h"
#include "providers/cuda/fp8/column_sums.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/fp8/row_parts.h"
#include "providers/cuda/fp8/turned_tile.h"
#include "providers/cuda/register.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

static_assert(kTurnedWarps == kSquareWarps && kTransposeSide == kTileColumns);

// One tensor, described twice: by the blocks of its rows, and by the blocks of
// its columns.
struct BothWays {
  Blocks rows, columns;
};

// ---- whole rows and columns are measured first

constexpr int kStripDown = 2, kStripAcross = 2;  // tiles of a block of threads

// Raises the amaxes of the rows of a warp. Each lane has the peaks of its
// vectors.
template <Storage kStorage>
__device__ void StoreRowPeaks(const Blocks& rows, int64_t first_row,
                              uint32_t (&peaks)[kVectors<kStorage>]) {
  LargestOfLanes(InTile<kStorage>::kAcross, peaks);
  int lane = threadIdx.x % 32;
  if (lane % InTile<kStorage>::kAcross != 0) return;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    int64_t row = first_row + InTile<kStorage>::RowOf(v, lane);
    if (peaks[v] > 0 && row < rows.rows) {
      atomicMax(reinterpret_cast<uint32_t*>(rows.factors) + row, peaks[v]);
    }
  }
}

template <Storage kStorage>
__device__ void MeasureStrip(const BothWays& both, Tile strip,
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
      InTile<kStorage> in(b, first_row, first);
      Vector x[kVectors<kStorage>];
      LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
      Vector of_columns = FinitePeaksAcross<kStorage>(x, seen);
      ONNX_FP8_UNROLL
      for (int w = 0; w < kWords; ++w) {
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
    MeasureBothKernel(Many<BothWays> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kStripAcross][kWarps];
  ColumnPeaks(*to)[kWarps] = peaks;
  int tensor = TensorOf(many, blockIdx.x);
  const BothWays& both = many.tensors[tensor];
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
__device__ void EncodeRows(const Blocks& rows, const Group<kStorage>& in,
                           const Vector (&x)[kVectors<kStorage>], bool special,
                           const float (&factors)[kVectors<kStorage>]) {
  if (!rows.q) return;
  EncodeHeld<kStorage>(x, rows.e4m3, special, rows.q, rows.aligned, in,
                       [&](int v, int) { return factors[v]; });
}

template <Storage kStorage>
__device__ void EncodeWhole(const BothWays& both, int64_t row, int64_t column,
                            const EncodedTile& tile) {
  const Blocks& b = both.rows;
  Group<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  float factors[kVectors<kStorage>];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    factors[v] = v < in.rows ? b.factors[row + in.row + v] : 0.0f;
  }
  if (tile.sums) PutColumnSums<kStorage>(x, in, *tile.sums);
  bool special = b.amax->non_finite;
  EncodeRows<kStorage>(b, in, x, special, factors);
  EncodeColumns<kStorage>(b.e4m3, in, x, special,
                          both.columns.factors + column + in.column,
                          tile.words);
}

template <Storage kStorage>
__device__ void EncodeParts(const BothWays& both, Tile at, int64_t row,
                            int64_t column, const EncodedTile& tile,
                            AmaxPart& seen) {
  const Blocks& b = both.rows;
  Group<kStorage> in(b.rows, b.columns, row, column);
  Vector x[kVectors<kStorage>];
  LoadHeld<kStorage>(b.x.data, b.aligned, in, x);
  if (tile.sums) PutColumnSums<kStorage>(x, in, *tile.sums);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), tile.peaks);
  float factors[kVectors<kStorage>];
  FactorsOfRowParts<kStorage, Group<kStorage>>(b, x, row, at.across, seen,
                                               factors);
  EncodeRows<kStorage>(b, in, x, seen.non_finite, factors);
  __syncthreads();
  StoreFactors<kStorage>(both.columns, at, tile.peaks, tile.factors);
  __syncthreads();
  EncodeColumns<kStorage>(b.e4m3, in, x, seen.non_finite,
                          FactorsOfWarp(both.columns, tile.factors) + in.column,
                          tile.words);
}

// If kParts, the tensors are quantized in parts, and the kernel measures the
// parts. If kSums, it also writes the sums of x's columns.
template <bool kNarrow, bool kParts, bool kSums>
__global__ void __launch_bounds__(32 * kTurnedWarps, kNarrow ? 2 : 1)
    EncodeBothKernel(Many<BothWays> many) {
  __shared__ TileOfWords words[kCodes];
  EncodedTile tile = {words, nullptr, nullptr, nullptr};
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    tile.sums = &of_tile;
  }
  if constexpr (kParts) {
    __shared__ __align__(16) ColumnPeaks peaks[kTurnedWarps];
    __shared__ __align__(16) float factors[32 * kTurnedWarps];
    tile.peaks = peaks;
    tile.factors = factors;
  }
  unsigned block = kParts ? blockIdx.x : BlockFromEnd();
  int tensor = TensorOf(many, block);
  const BothWays& both = many.tensors[tensor];
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
  if (both.columns.q_turned) {
    WriteTurned(both.columns.q_turned, b.rows, b.columns, row, column, words);
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

size_t WorkspaceOfBothWays(const KernelContext& ctx, const BothWays& both) {
  return FactorBytes(both.rows) + FactorBytes(both.columns) +
         ColumnSumsBytes(ctx);
}

size_t BytesOfBothWays(KernelContext& ctx) {
  return WorkspaceOfBothWays(ctx, {BlocksOf(ctx, false), BlocksOf(ctx, true)});
}

BothWays BothWaysOf(KernelContext& ctx) {
  BothWays both = {BlocksOf(ctx, false), BlocksOf(ctx, true)};
  auto* memory =
      static_cast<char*>(ctx.Workspace(WorkspaceOfBothWays(ctx, both)));
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

// Starts a kernel for the tensors of that way, with `blocks_of` blocks each.
template <typename BlocksOfTensor>
void Start(cudaStream_t stream, std::span<BothWays> all, Way way, bool narrow,
           void (*kernel)(Many<BothWays>), int threads,
           const BlocksOfTensor& blocks_of) {
  auto its_blocks = [&](const BothWays& both) {
    bool its = both.rows.way == way && IsNarrow(both.rows) == narrow;
    return its ? blocks_of(both) : 0u;
  };
  ForMany(all, its_blocks, [&](const Many<BothWays>& many) {
    Launch(kernel, many.blocks, threads, 0, stream, many);
  });
}

template <bool kParts>
void StartEncoding(cudaStream_t stream, std::span<BothWays> all) {
  auto start = [&](bool narrow, bool sums, void (*kernel)(Many<BothWays>)) {
    Start(stream, all, kParts ? Way::kBothParts : Way::kBothWhole, narrow,
          kernel, 32 * kTurnedWarps, [sums](const BothWays& both) {
            bool its = (both.columns.sums != nullptr) == sums;
            return its ? Tiles(both.rows, kTransposeSide, kTransposeSide) : 0u;
          });
  };
  start(true, false, EncodeBothKernel<true, kParts, false>);
  start(false, false, EncodeBothKernel<false, kParts, false>);
  start(true, true, EncodeBothKernel<true, kParts, true>);
  start(false, true, EncodeBothKernel<false, kParts, true>);
}

void QuantizeBothWays(std::span<KernelContext> nodes) {
  std::vector<BothWays> all;
  std::vector<Blocks> each;
  for (KernelContext& ctx : nodes) {
    const BothWays& both = all.emplace_back(BothWaysOf(ctx));
    each.push_back(both.rows);
    each.push_back(both.columns);
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  ClearFactors(stream, each);
  for (bool narrow : {true, false}) {
    Start(stream, all, Way::kBothWhole, narrow,
          narrow ? MeasureBothKernel<true> : MeasureBothKernel<false>,
          32 * kWarps, [](const BothWays& both) {
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

void QuantizeBlockTranspose(KernelContext& ctx) { QuantizeBothWays({&ctx, 1}); }

}  // namespace

void RegisterQuantizeBlockTranspose(KernelRegistry& r) {
  r.Add("QuantizeBlockTranspose", QuantizeBlockTranspose,
        {.own_amaxes = 1,
         .narrow_in = {0},
         .workspace = BytesOfBothWays,
         .many = QuantizeBothWays},
        kDomain);
}

}  // namespace onnx_fp8::cuda
