// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock, and the dispatch of QuantizeColumns: each block of elements
// has a scale. Bytes and scales are the CPU's. One kernel quantizes many
// tensors; a tensor's Strategy says which one.
// Traffic: q is written once. x is read once by register-resident strategies
// (blocks.h), and twice by the others, first for the amaxes; the second read of
// a long row or column is mostly in a cache. Factors: a few floats of each
// block. QuantizeColumns: quantize_block_transpose.cu's.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/fp8/block_tile.h"
#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/fragment.h"
#include "providers/cuda/fp8/transpose_layout.h"
#include "providers/kernel.h"
#include "providers/ops/block_grid.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

// ---- strategies

// The largest group of neighboring lanes whose columns always lie in one block;
// 0: not even the four columns of one lane do.
int LanesTogether(const BlockGrid& grid) {
  if (grid.across == 1) return kLanes;
  if (grid.block_columns % kPerThread != 0) return 0;
  int lanes = 1;
  while (lanes < kLanes && grid.block_columns % (2 * lanes * kPerThread) == 0) {
    lanes *= 2;
  }
  return lanes;
}

// Fewer long rows would leave most of a GPU idle.
constexpr int64_t kLeastLongRows = 64;

// Elements of a vector.
int64_t WidthOf(const Blocks& b) {
  return IsNarrow(b) ? kVectorWidth<Storage::kBFloat16>
                     : kVectorWidth<Storage::kFloat>;
}

bool IsAligned(const Blocks& b) {
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return address(b.x.data) % 16 == 0 && address(b.q) % 8 == 0;
}

// Whether a tile has whole blocks of that many elements of a row or a column.
bool IsPart(int64_t block) {
  return block == 32 || block == 64 || block == kTileColumns;
}

int Logarithm(int64_t power) {
  int shift = 0;
  while (int64_t{1} << shift < power) ++shift;
  return shift;
}

// A tensor's strategy, and what goes with it.
void ChooseStrategy(const BlockGrid& grid, Blocks& b) {
  int64_t width = WidthOf(b);
  bool aligned = IsAligned(b);
  b.strategy = Strategy::kGeneric;
  // Blocks without elements have scales, too.
  if (grid.rows == 0 || grid.columns == 0) return;
  auto has = [](int64_t block, int64_t size, int64_t wanted) {
    return block == wanted || (block == size && size <= wanted);
  };
  // Rows may begin in the middle of a vector.
  int64_t held = grid.columns + (grid.columns % width == 0 ? 0 : width - 1);
  int64_t most = int64_t{32} * kFragmentSize;  // that a warp holds
  bool is_held = held <= 16 * most;
  if (!b.transposed && grid.block_rows == 1 && grid.across == 1 &&
      (is_held || grid.rows >= kLeastLongRows)) {
    b.strategy = is_held ? Strategy::kRows : Strategy::kLongRows;
    b.aligned = aligned;
    b.warps = 1;
    while (b.warps < 16 && b.warps * most < held) b.warps *= 2;
    return;
  }
  b.aligned = aligned && grid.columns % width == 0;
  if (!b.transposed && has(grid.block_rows, grid.rows, kTileColumns) &&
      has(grid.block_columns, grid.columns, kTileColumns)) {
    b.strategy = Strategy::kSquares;
  } else if (!b.transposed && grid.block_rows == 1 &&
             IsPart(grid.block_columns)) {
    b.strategy = Strategy::kRowParts;
    b.shift = Logarithm(grid.block_columns / width);
  } else if (grid.block_columns == 1 && IsPart(grid.block_rows)) {
    b.strategy = Strategy::kColumnParts;
    b.shift = Logarithm(grid.block_rows / kRowsOfWarp);
  } else if (grid.block_columns == 1 && grid.down == 1) {
    bool is_short = grid.rows <= kTileColumns;
    b.strategy = is_short ? Strategy::kColumnParts : Strategy::kColumns;
    b.shift = Logarithm(kSquareWarps);
  }
  if (b.transposed && b.strategy == Strategy::kColumnParts)
    b.strategy = Strategy::kTransposedParts;
}

// Chooses the strategy of a tensor that QuantizeBlockTranspose reads. A block
// has `block` elements of a row or of a column; 0 means whole rows and columns.
void ChooseStrategyOfBoth(int64_t block, Blocks& b) {
  b.aligned = IsAligned(b) && b.columns % WidthOf(b) == 0;
  b.strategy = block == 0 ? Strategy::kBothWhole : Strategy::kBothParts;
  if (block == 0) return;
  b.shift = Logarithm(block / (b.transposed ? kRowsOfWarp : WidthOf(b)));
}

bool IsBoth(const KernelContext& ctx) {
  return ctx.node().op == "QuantizeBlockTranspose";
}

// The blocks of x. If `transposed`, attributes describe the transpose.
BlockGrid GridIn(const KernelContext& ctx, bool transposed) {
  int64_t rows = ctx.Int("block_rows", 0);
  int64_t columns = ctx.Int("block_columns", 0);
  Check(rows == 1 || !(transposed || IsBoth(ctx)), "[", ctx.Where(),
        "] expected block_rows of 1, got ", rows);
  Check(!IsBoth(ctx) || IsPartOfBoth(columns), "[", ctx.Where(),
        "] expected block_columns of 0, 32, 64 or 128, got ", columns);
  return transposed
             ? GridOf(ctx, Operand(ctx, 0), "block_columns", "block_rows")
             : GridOf(ctx, Operand(ctx, 0), "block_rows", "block_columns");
}

}  // namespace

Blocks BlocksOf(KernelContext& ctx, bool transposed) {
  bool second = transposed && IsBoth(ctx);
  size_t codes = second ? kTransposedCodes : 0;
  size_t scales = second ? kTransposedScales : 1;
  BlockGrid grid = GridIn(ctx, transposed);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Blocks b = {.x = FloatsOf(ctx, 0),
              .rows = grid.rows,
              .columns = grid.columns,
              .block_rows = grid.block_rows,
              .block_columns = grid.block_columns,
              .down = grid.down,
              .across = grid.across,
              .count = grid.blocks(),
              .e4m3 = to == DType::kE4M3,
              .lanes_together = LanesTogether(grid),
              .amax = reinterpret_cast<DeviceAmax*>(ctx.OwnAmax(0)),
              .format = BlockFormatOf(ctx),
              .transposed = transposed};
  Check(!transposed || !SumsColumns(ctx) || ctx.HasOut(codes), "[", ctx.Where(),
        "] expected codes beside the sums of columns, got none");
  if (ctx.HasOut(codes) && transposed) {
    MatrixSizes sizes =
        cuda::SizesOf(Operand(ctx, 0).size(), grid.columns, false);
    b.q_transposed = TransposedTo(ctx, codes, to, sizes);
  } else if (ctx.HasOut(codes)) {
    b.q = static_cast<uint8_t*>(ctx.Out(0, to, Operand(ctx, 0).shape()).raw());
  }
  if (ctx.HasOut(scales)) {
    Shape shape = {grid.down, grid.across};
    if (transposed) std::swap(shape[0], shape[1]);
    b.scales = ctx.Out(scales, ScaleDType(b.format), shape).raw();
  }
  if (ctx.HasOut(2) && !second) {
    b.amax_out = static_cast<float*>(ctx.Out(2, DType::kFloat, {}).raw());
  }
  if (IsBoth(ctx)) {
    ChooseStrategyOfBoth(ctx.Int("block_columns", 0), b);
  } else {
    ChooseStrategy(grid, b);
  }
  return b;
}

namespace {

// ---- factors

__global__ void __launch_bounds__(kThreads) FactorsKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i == 0 && b.amax_out) {
    *b.amax_out = b.amax->non_finite ? std::numeric_limits<float>::infinity()
                                     : __uint_as_float(b.amax->finite);
  }
  if (!b.factors || i >= b.count) return;
  float factor = BlockFactor(b.format, b.factors[i]);
  b.factors[i] = factor;
  if (!b.scales) return;
  StoreScale(b.format, b.scales, ScaleAt(b, i / b.across, i % b.across),
             factor);
}

// Factors of a tensor.
struct Cleared {
  float* factors;
  int64_t count;
};

__global__ void __launch_bounds__(kThreads) ClearKernel(Many<Cleared> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Cleared own = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i < own.count) own.factors[i] = 0;
}

}  // namespace

void ClearFactors(cudaStream_t stream, std::span<const Blocks> all) {
  std::vector<Cleared> cleared;
  for (const Blocks& b : all) cleared.push_back({b.factors, FactorsOf(b)});
  ForMany(
      cleared,
      [](const Cleared& own) {
        return static_cast<unsigned>(DivideUp(own.count, kThreads));
      },
      [&](const Many<Cleared>& many) {
        Launch(ClearKernel, many.blocks, kThreads, 0, stream, many);
      });
}

void MakeFactors(cudaStream_t stream, std::span<Blocks> all) {
  // One block at least writes the amax.
  StartBlocks(stream, all, FactorsKernel, kThreads, [](const Blocks& b) {
    auto blocks = static_cast<unsigned>(DivideUp(FactorsOf(b), kThreads));
    return std::max(blocks, b.amax_out ? 1u : 0u);
  });
}

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
  int lead = static_cast<int>(start) & (kVectorWidth<kStorage> - 1);
  int end = row < b.rows ? lead + static_cast<int>(b.columns) : 0;
  auto bounds = [&](int v) -> VectorBounds {
    int i = (thread + v * kThreadsOfRow) * kVectorWidth<kStorage>;
    return {start - lead + i, lead - i, end - i};
  };
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, bounds, x);
  uint32_t peak = LargestOfRow<kRowWarps>(FinitePeak<kStorage>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && thread == 0 && row < b.rows) {
    StoreScale(b.format, b.scales, row, factor);
  }
  if (!b.q) return;
  EncodeFragment<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, bounds,
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
  constexpr int kStep = kThreadsOfRow * kFragmentSize;
  int thread = threadIdx.x;
  int64_t start = row * b.columns;
  int lead = static_cast<int>(start & (kVectorWidth<kStorage> - 1));
  int64_t end = lead + b.columns;
  // What the threads hold from element `first` of the row's vectors on.
  auto bounds_from = [&](int64_t first) {
    int64_t left = end - first, origin = start - lead + first;
    int from = first == 0 ? lead : 0;
    int to = left < kStep ? static_cast<int>(left) : kStep;
    return [thread, origin, from, to](int v) -> VectorBounds {
      int i = (thread + v * kThreadsOfRow) * kVectorWidth<kStorage>;
      return {origin + i, from - i, to - i};
    };
  };
  uint32_t peak = 0;
  ONNX_FP8_KEEP_LOOP
  for (int64_t first = 0; first < end; first += kStep) {
    Vector x[kVectors<kStorage>];
    LoadFragment<kStorage>(b.x.data, b.aligned, bounds_from(first), x);
    uint32_t own = FinitePeak<kStorage>(x, seen);
    peak = own > peak ? own : peak;
  }
  peak = LargestOfRow<kLongWarps>(peak, parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && thread == 0) StoreScale(b.format, b.scales, row, factor);
  if (!b.q) return;
  ONNX_FP8_KEEP_LOOP
  for (int64_t first = 0; first < end; first += kStep) {
    auto bounds = bounds_from(first);
    Vector x[kVectors<kStorage>];
    LoadFragment<kStorage>(b.x.data, b.aligned, bounds, x);
    EncodeFragment<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, bounds,
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
  TileLayout<kStorage> in(b, first, tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  float factors[kVectors<kStorage>];
  FactorsOfRowParts<kStorage, TileLayout<kStorage>>(b, x, first, tile.across,
                                                    seen, factors);
  if (!b.q) return;
  EncodeFragment<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
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
  using In = TileLayout<kStorage>;
  In in(b, tile.down * kTileColumns, tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  StorePeaks<kStorage>(FinitePeaksAcross<kStorage>(x, seen), peaks);
  __syncthreads();
  StoreFactors<kStorage>(b, tile, peaks, factors);
  __syncthreads();
  if (!b.q) return;
  const float* from = FactorsOfWarp(b, factors) + in.column;
  float own[kVectorWidth<kStorage>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kVectorWidth<kStorage>; ++k) own[k] = from[k];
  EncodeFragment<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
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
  TileLayout<kStorage> in(b, tile.down * kTileColumns,
                          tile.across * kTileColumns);
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  uint32_t peak =
      LargestOfRow<kSquareWarps>(FinitePeak<kStorage>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && threadIdx.x == 0) {
    StoreScale(b.format, b.scales, tile.down * b.across + tile.across, factor);
  }
  if (!b.q) return;
  EncodeFragment<kStorage>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
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
    TileLayout<kStorage> in(b, first, strip.across * kTileColumns);
    Vector x[kVectors<kStorage>];
    LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
    Vector own = FinitePeaksAcross<kStorage>(x, seen);
    ONNX_FP8_UNROLL
    for (int w = 0; w < kVectorWords; ++w) {
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
  TileLayout<kStorage> in(b, tile.down * kTileRows, tile.across * kTileColumns);
  const float* from = b.factors + tile.across * kTileColumns + in.column;
  float own[kVectorWidth<kStorage>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kVectorWidth<kStorage>; ++k)
    own[k] = k < in.end ? from[k] : 0.0f;
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(b.x.data, b.aligned, in, x);
  EncodeFragment<kStorage>(x, b.e4m3, b.amax->non_finite, b.q, b.aligned, in,
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

// Starts the kernels of one width of storage, but for the second pass over
// columns, the transposed strategies and blocks of any size.
template <bool kNarrow>
void StartRegisterResident(cudaStream_t stream, std::span<Blocks> all) {
  auto start_rows = [&]<int kRowWarps>() {
    constexpr int kAtOnce = kRowsAtOnce<kRowWarps>;
    StartBlocks(stream, all, QuantizeRowsKernel<kRowWarps, kNarrow>,
                kRowThreads<kRowWarps>, [](const Blocks& b) {
                  bool its = b.strategy == Strategy::kRows &&
                             b.warps == kRowWarps && IsNarrow(b) == kNarrow;
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
                bool its =
                    b.strategy == Strategy::kLongRows && IsNarrow(b) == kNarrow;
                return its ? static_cast<unsigned>(b.rows) : 0u;
              });
  // Tiles of `rows` rows, one for each block of threads.
  auto start_tiles = [&](Strategy strategy, int64_t rows, int warps,
                         void (*kernel)(Many<Blocks>)) {
    StartBlocks(stream, all, kernel, 32 * warps,
                [strategy, rows](const Blocks& b) {
                  bool its = b.strategy == strategy && IsNarrow(b) == kNarrow;
                  return its ? Tiles(b, rows, kTileColumns) : 0u;
                });
  };
  start_tiles(Strategy::kRowParts, kTileRows, kWarps,
              QuantizeRowPartsKernel<kNarrow>);
  start_tiles(Strategy::kColumnParts, kTileColumns, kSquareWarps,
              QuantizeColumnPartsKernel<kNarrow>);
  start_tiles(Strategy::kSquares, kTileColumns, kSquareWarps,
              QuantizeSquaresKernel<kNarrow>);
  start_tiles(Strategy::kColumns, kStripTiles * kTileRows, kWarps,
              ColumnPeaksKernel<kNarrow>);
}

void QuantizeRegisterResident(cudaStream_t stream, std::span<Blocks> all) {
  StartRegisterResident<true>(stream, all);
  StartRegisterResident<false>(stream, all);
}

void EncodeWholeColumns(cudaStream_t stream, std::span<Blocks> all) {
  for (bool narrow : {true, false}) {
    StartBlocks(stream, all,
                narrow ? EncodeColumnsKernel<true> : EncodeColumnsKernel<false>,
                32 * kWarps, [narrow](const Blocks& b) {
                  bool its = b.q && b.strategy == Strategy::kColumns &&
                             IsNarrow(b) == narrow;
                  return its ? Tiles(b, kTileRows, kTileColumns) : 0u;
                });
  }
}

// ---- blocks of any size

constexpr int kGenericLines = 8;
constexpr int kGenericColumns = kLanes * kPerThread;  // of a tile
constexpr int kGenericRows = 64;                      // of a tile

__host__ __device__ unsigned TilesOfRow(const Blocks& b) {
  return static_cast<unsigned>(DivideUp(b.columns, kGenericColumns));
}

// Where a thread begins in its block's tile of a tensor.
struct ThreadOrigin {
  int64_t first, column;  // the tile's first row; of four elements
  int line;               // the first row in the tile
};

__device__ ThreadOrigin ThreadOriginOf(const Blocks& b, unsigned tile) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t down = tile / TilesOfRow(b), across = tile % TilesOfRow(b);
  return {down * kGenericRows, across * kGenericColumns + lane * kPerThread,
          line};
}

// Four elements of a row; those beyond the row are 0.
__device__ void LoadRow(const Blocks& b, int64_t row, int64_t column,
                        float (&x)[kPerThread]) {
  int64_t at = row * b.columns + column;
  if (b.columns % kPerThread == 0) return Load4(b.x, at, x);
  for (int k = 0; k < kPerThread; ++k) {
    x[k] = column + k < b.columns ? Load(b.x, at + k) : 0.0f;
  }
}

// Raises the peaks of the blocks in block row `down` to the peaks that a warp
// has seen. All lanes call it.
__device__ void Raise(const Blocks& b, int64_t down, int64_t column,
                      const uint32_t (&seen)[kPerThread]) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  auto* peaks = reinterpret_cast<uint32_t*>(b.factors) + down * b.across;
  if (b.lanes_together == 0) {
    for (int k = 0; k < kPerThread; ++k) {
      if (seen[k] > 0) {
        atomicMax(peaks + (column + k) / b.block_columns, seen[k]);
      }
    }
    return;
  }
  uint32_t largest = 0;
  for (uint32_t s : seen) largest = s > largest ? s : largest;
  for (int lanes = b.lanes_together / 2; lanes > 0; lanes /= 2) {
    uint32_t other = __shfl_xor_sync(kAll, largest, lanes);
    largest = other > largest ? other : largest;
  }
  int lane = threadIdx.x % kLanes;
  if (lane % b.lanes_together == 0 && largest > 0) {
    atomicMax(peaks + column / b.block_columns, largest);
  }
}

__global__ void __launch_bounds__(kLanes* kGenericLines)
    PeaksKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  auto [first, column, line] =
      ThreadOriginOf(b, blockIdx.x - many.begin[tensor]);
  AmaxPart all;
  uint32_t seen[kPerThread] = {};
  int64_t down = -1;
  for (int r = line; r < kGenericRows && first + r < b.rows;
       r += kGenericLines) {
    int64_t row = first + r, own = row / b.block_rows;
    if (own != down) {
      if (down >= 0) Raise(b, down, column, seen);
      for (uint32_t& s : seen) s = 0;
      down = own;
    }
    if (column >= b.columns) continue;
    float x[kPerThread];
    LoadRow(b, row, column, x);
    for (int k = 0; k < kPerThread; ++k) {
      AmaxPart one;
      one.Add(x[k]);
      seen[k] = one.finite > seen[k] ? one.finite : seen[k];
      all.Add(x[k]);
    }
  }
  if (down >= 0) Raise(b, down, column, seen);
  all.AddOfBlock(b.amax);
}

template <bool kE4M3>
__global__ void __launch_bounds__(kLanes* kGenericLines)
    EncodeBlockKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  auto [first, column, line] =
      ThreadOriginOf(b, blockIdx.x - many.begin[tensor]);
  if (column >= b.columns) return;
  for (int r = line; r < kGenericRows && first + r < b.rows;
       r += kGenericLines) {
    int64_t row = first + r;
    const float* factors = b.factors + row / b.block_rows * b.across;
    float x[kPerThread];
    LoadRow(b, row, column, x);
    uint8_t* to = b.q + row * b.columns + column;
    uint32_t codes = 0;
    for (int k = 0; k < kPerThread; ++k) {
      if (column + k >= b.columns) continue;
      float factor = factors[(column + k) / b.block_columns];
      codes |= EncodeProduct<kE4M3>(x[k], factor) << 8 * k;
    }
    if (b.columns % kPerThread == 0) {
      *reinterpret_cast<uint32_t*>(to) = codes;
      continue;
    }
    for (int k = 0; k < kPerThread && column + k < b.columns; ++k) {
      to[k] = static_cast<uint8_t>(codes >> 8 * k);
    }
  }
}

void MeasureGeneric(cudaStream_t stream, std::span<Blocks> all) {
  StartBlocks(stream, all, PeaksKernel, kLanes * kGenericLines,
              [](const Blocks& b) {
                return b.strategy == Strategy::kGeneric
                           ? Tiles(b, kGenericRows, kGenericColumns)
                           : 0u;
              });
}

void EncodeGeneric(cudaStream_t stream, std::span<Blocks> all) {
  for (bool e4m3 : {true, false}) {
    StartBlocks(
        stream, all, e4m3 ? EncodeBlockKernel<true> : EncodeBlockKernel<false>,
        kLanes * kGenericLines, [e4m3](const Blocks& b) {
          bool its = b.q && b.strategy == Strategy::kGeneric && b.e4m3 == e4m3;
          return its ? Tiles(b, kGenericRows, kGenericColumns) : 0u;
        });
  }
}

// ---- launches

// The kernel's workspace: factors, and parts of sums behind them.
struct Workspace {
  size_t factors, sums;  // bytes

  size_t bytes() const { return factors + sums; }
};

Workspace WorkspaceOf(const KernelContext& ctx, const Blocks& b) {
  auto factors = static_cast<size_t>(FactorsOf(b)) * sizeof(float);
  return {factors, ColumnSumsBytes(ctx)};
}

Blocks BlocksOfNode(KernelContext& ctx) {
  return BlocksOf(ctx, ctx.node().op == "QuantizeColumns");
}

size_t WorkspaceBytes(KernelContext& ctx) {
  return WorkspaceOf(ctx, BlocksOfNode(ctx)).bytes();
}

void QuantizeBlocks(std::span<KernelContext> nodes) {
  std::vector<Blocks> all;
  for (KernelContext& ctx : nodes) {
    Blocks& b = all.emplace_back(BlocksOfNode(ctx));
    Workspace workspace = WorkspaceOf(ctx, b);
    auto* memory = static_cast<char*>(ctx.Workspace(workspace.bytes()));
    if (workspace.factors > 0) b.factors = reinterpret_cast<float*>(memory);
    if (workspace.sums > 0) {
      b.sums = reinterpret_cast<float*>(memory + workspace.factors);
    }
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  ClearFactors(stream, all);
  QuantizeRegisterResident(stream, all);
  QuantizeTransposed(stream, all);
  MeasureGeneric(stream, all);
  MakeFactors(stream, all);
  EncodeWholeColumns(stream, all);
  EncodeGeneric(stream, all);
  EncodeTransposed(stream, all);
  for (size_t i = 0; i < nodes.size(); ++i) {
    AddColumnSums(nodes[i], all[i].sums);
  }
}

void QuantizeBlock(KernelContext& ctx) { QuantizeBlocks({&ctx, 1}); }

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  const KernelTraits traits{.own_amaxes = 1,
                            .narrow_in = {0},
                            .workspace = WorkspaceBytes,
                            .many = QuantizeBlocks};
  r.Add("QuantizeBlock", QuantizeBlock, traits, kDomain);
  r.Add("QuantizeColumns", QuantizeBlock, traits, kDomain);
}

}  // namespace onnx_fp8::cuda
