// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock. Bytes and scales are the CPU's. One kernel quantizes many
// tensors. Traffic: where threads can hold the elements of a block (see Way),
// x is read once and q is written once; else x is read twice, once for the
// amaxes of the blocks.
#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "providers/block_grid.h"
#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/block_factor.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/fp8/held.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

enum class Way : uint8_t {
  kRows,         // one scale for a row, which some warps hold
  kRowParts,     // 1 x 32, 64 or 128
  kColumnParts,  // 32, 64 or 128 x 1, and short columns
  kSquares,      // 128 x 128, and small matrices
  kColumns,      // one scale for a column: x is read twice
  kOthers        // x is read twice
};

struct Blocks {
  FloatsIn x;
  int64_t rows, columns, block_rows, block_columns, across, count;
  Way way;
  bool aligned;  // vectors of 16 bytes and their codes can be moved at once
  bool e4m3;     // else E5M2
  // kRows: the warps of a row. kRowParts, kColumnParts: the logarithm of the
  // lanes, or warps, that hold a part.
  int warps, shift;
  int lanes_together;  // kOthers: neighbors whose elements lie in one block
  float* factors;      // of each block, if x is read twice; before that, amaxes
  DeviceAmax* amax;    // of all
  BlockFormat format;
  void* scales;
  float* amax_out;
  uint8_t* q;
};

// ---- rows

constexpr int kWarps = 8;  // of most blocks of threads

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

template <int kRowWarps, Kept kKept>
__device__ void QuantizeRow(const Blocks& b, int64_t row, uint32_t* parts,
                            AmaxPart& seen) {
  constexpr int kThreadsOfRow = 32 * kRowWarps;
  int thread = threadIdx.x % kThreadsOfRow;
  // The row's vectors are aligned, whatever its length is: the first one and
  // the last one may be incomplete.
  int64_t start = row * b.columns;
  int lead = static_cast<int>(start) & (kWidth<kKept> - 1);
  int end = row < b.rows ? lead + static_cast<int>(b.columns) : 0;
  auto place = [&](int v) -> Place {
    int i = (thread + v * kThreadsOfRow) * kWidth<kKept>;
    return {start - lead + i, lead - i, end - i};
  };
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, place, x);
  uint32_t peak = LargestOfRow<kRowWarps>(FinitePeak<kKept>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && thread == 0 && row < b.rows) {
    StoreScale(b.format, b.scales, row, factor);
  }
  if (!b.q) return;
  EncodeHeld<kKept>(x, b.e4m3, seen.non_finite, b.q, b.aligned, place,
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
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    QuantizeRow<kRowWarps, decltype(kept)::value>(b, row, shared, seen);
  });
  seen.AddOfBlock(b.amax);
}

// ---- tiles of 128 columns, of which each warp holds 8 rows

constexpr int kTileColumns = 128, kRowsOfWarp = 8;
constexpr int kTileRows = kRowsOfWarp * kWarps;
// Tiles with as many rows as columns.
constexpr int kSquareWarps = kTileColumns / kRowsOfWarp;

// Where a thread's elements are.
template <Kept kKept>
struct InTile {
  static constexpr int kAcross = kTileColumns / kWidth<kKept>;  // lanes
  static constexpr int kDown = 32 / kAcross;  // rows of a warp's vectors

  int64_t at, step;  // of vector 0, and to the next one
  int row, column;   // of vector 0 in the tile
  int rows, end;     // rows and columns from there to the end of x

  __device__ InTile(const Blocks& b, int64_t first_row, int64_t first_column) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    row = warp * kRowsOfWarp + lane / kAcross;
    column = lane % kAcross * kWidth<kKept>;
    step = kDown * b.columns;
    at = (first_row + row) * b.columns + first_column + column;
    rows = Left(b.rows - first_row) - row;
    end = Left(b.columns - first_column) - column;
  }

  __device__ Place operator()(int v) const {
    return {at + v * step, 0, v * kDown < rows ? end : 0};
  }

  // As much of what is left of x as a tile may have.
  __device__ static int Left(int64_t n) {
    return static_cast<int>(n < kTileColumns ? n : kTileColumns);
  }
};

// A tile's number in each direction.
struct Tile {
  int64_t down, across;
};
__device__ Tile TileOf(const Blocks& b, unsigned tile) {
  unsigned across = static_cast<unsigned>(DivideUp(b.columns, kTileColumns));
  return {tile / across, tile % across};
}

// A part of a row belongs to neighboring lanes. Lane i computes the factor of
// the warp's part i.
template <Kept kKept>
__device__ void QuantizeRowParts(const Blocks& b, Tile tile, AmaxPart& seen) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  constexpr int kCount = kVectors<kKept>;
  using In = InTile<kKept>;
  int64_t first = tile.down * kTileRows;
  In in(b, first, tile.across * kTileColumns);
  Vector x[kCount];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  uint32_t peaks[kCount];
  FinitePeaks<kKept>(x, seen, peaks);
  ONNX_FP8_KEEP_LOOP
  for (int lanes = 1 << b.shift >> 1; lanes > 0; lanes /= 2) {
    ONNX_FP8_UNROLL
    for (int v = 0; v < kCount; ++v) {
      uint32_t other = __shfl_xor_sync(kAll, peaks[v], lanes);
      peaks[v] = other > peaks[v] ? other : peaks[v];
    }
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
  int64_t row =
      first + warp * kRowsOfWarp + vector * In::kDown + leader / In::kAcross;
  int in_row = leader % In::kAcross >> b.shift;  // the part in the tile's row
  int64_t part = (tile.across * (In::kAcross >> b.shift)) + in_row;
  if (b.scales && vector < kCount && row < b.rows && part < b.across) {
    StoreScale(b.format, b.scales, row * b.across + part, factor);
  }
  if (!b.q) return;
  float factors[kCount];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    factors[v] =
        __shfl_sync(kAll, factor, (v << groups_shift) + (lane >> b.shift));
  }
  EncodeHeld<kKept>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                    [&](int v, int) { return factors[v]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    QuantizeRowPartsKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, blockIdx.x - many.begin[tensor]);
  AmaxPart seen;
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    QuantizeRowParts<decltype(kept)::value>(b, tile, seen);
  });
  seen.AddOfBlock(b.amax);
}

// What each warp has seen of each column of a tile.
using ColumnPeaks = uint32_t[kTileColumns];

template <Kept kKept>
__device__ void StorePeaks(Vector own, ColumnPeaks* peaks) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  constexpr int kAcross = InTile<kKept>::kAcross;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  ONNX_FP8_UNROLL
  for (int lanes = 16; lanes >= kAcross; lanes /= 2) {
    ONNX_FP8_UNROLL
    for (int w = 0; w < kWords; ++w) {
      uint32_t other = __shfl_xor_sync(kAll, own.words[w], lanes);
      own.words[w] = Larger<kKept>(own.words[w], other);
    }
  }
  if (lane < kAcross) {
    *reinterpret_cast<uint4*>(&peaks[warp][lane * kWords]) =
        make_uint4(own.words[0], own.words[1], own.words[2], own.words[3]);
  }
}

// The largest of what `warps` warps have seen of a column, as a float's bits.
template <Kept kKept>
__device__ uint32_t PeakOfColumn(const ColumnPeaks* peaks, int warps,
                                 int column) {
  constexpr int kInWord = kWidth<kKept> / kWords;
  uint32_t peak = 0;
  ONNX_FP8_KEEP_LOOP
  for (int warp = 0; warp < warps; ++warp) {
    peak = Larger<kKept>(peak, peaks[warp][column / kInWord]);
  }
  if (kInWord == 1) return peak;
  return FloatBits<kKept>(column % 2 ? peak >> 16 : peak & 0xFFFFu);
}

template <Kept kKept>
__device__ void QuantizeColumnParts(const Blocks& b, Tile tile,
                                    ColumnPeaks* peaks, float* factors,
                                    AmaxPart& seen) {
  using In = InTile<kKept>;
  In in(b, tile.down * kTileColumns, tile.across * kTileColumns);
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  StorePeaks<kKept>(FinitePeaksAcross<kKept>(x, seen), peaks);
  __syncthreads();
  int thread = threadIdx.x, warps = 1 << b.shift;
  int part = thread / kTileColumns, its_column = thread % kTileColumns;
  if (part << b.shift < kSquareWarps) {
    float factor = BlockFactor(
        b.format, __uint_as_float(PeakOfColumn<kKept>(peaks + (part << b.shift),
                                                      warps, its_column)));
    factors[thread] = factor;
    int64_t down = tile.down * (kSquareWarps >> b.shift) + part;
    int64_t column = tile.across * kTileColumns + its_column;
    if (b.scales && down * b.block_rows < b.rows && column < b.columns) {
      StoreScale(b.format, b.scales, down * b.columns + column, factor);
    }
  }
  __syncthreads();
  if (!b.q) return;
  const float* from =
      factors + (thread / 32 >> b.shift) * kTileColumns + in.column;
  float own[kWidth<kKept>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kKept>; ++k) own[k] = from[k];
  EncodeHeld<kKept>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                    [&](int, int k) { return own[k]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kSquareWarps)
    QuantizeColumnPartsKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kSquareWarps];
  __shared__ __align__(16) float factors[32 * kSquareWarps];
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, blockIdx.x - many.begin[tensor]);
  ColumnPeaks* to = peaks;
  float* factors_to = factors;
  AmaxPart seen;
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    QuantizeColumnParts<decltype(kept)::value>(b, tile, to, factors_to, seen);
  });
  seen.AddOfBlock(b.amax);
}

template <Kept kKept>
__device__ void QuantizeSquare(const Blocks& b, Tile tile, uint32_t* parts,
                               AmaxPart& seen) {
  InTile<kKept> in(b, tile.down * kTileColumns, tile.across * kTileColumns);
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  uint32_t peak = LargestOfRow<kSquareWarps>(FinitePeak<kKept>(x, seen), parts);
  float factor = BlockFactor(b.format, __uint_as_float(peak));
  if (b.scales && threadIdx.x == 0) {
    StoreScale(b.format, b.scales, tile.down * b.across + tile.across, factor);
  }
  if (!b.q) return;
  EncodeHeld<kKept>(x, b.e4m3, seen.non_finite, b.q, b.aligned, in,
                    [&](int, int) { return factor; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kSquareWarps)
    QuantizeSquaresKernel(Many<Blocks> many) {
  __shared__ uint32_t parts[kSquareWarps];
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, blockIdx.x - many.begin[tensor]);
  uint32_t* shared = parts;
  AmaxPart seen;
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    QuantizeSquare<decltype(kept)::value>(b, tile, shared, seen);
  });
  seen.AddOfBlock(b.amax);
}

// ---- whole columns

constexpr int kStripTiles = 2;  // that a block of threads measures

template <Kept kKept>
__device__ void MeasureColumns(const Blocks& b, Tile strip, ColumnPeaks* peaks,
                               AmaxPart& seen) {
  Vector all = {};
  ONNX_FP8_KEEP_LOOP
  for (int i = 0; i < kStripTiles; ++i) {
    int64_t first = (strip.down * kStripTiles + i) * kTileRows;
    InTile<kKept> in(b, first, strip.across * kTileColumns);
    Vector x[kVectors<kKept>];
    LoadHeld<kKept>(b.x.data, b.aligned, in, x);
    Vector own = FinitePeaksAcross<kKept>(x, seen);
    ONNX_FP8_UNROLL
    for (int w = 0; w < kWords; ++w) {
      all.words[w] = Larger<kKept>(all.words[w], own.words[w]);
    }
  }
  StorePeaks<kKept>(all, peaks);
  __syncthreads();
  int its_column = threadIdx.x;
  int64_t column = strip.across * kTileColumns + its_column;
  if (its_column >= kTileColumns || column >= b.columns) return;
  uint32_t peak = PeakOfColumn<kKept>(peaks, kWarps, its_column);
  if (peak > 0) {
    atomicMax(reinterpret_cast<uint32_t*>(b.factors) + column, peak);
  }
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    ColumnPeaksKernel(Many<Blocks> many) {
  __shared__ __align__(16) ColumnPeaks peaks[kWarps];
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile strip = TileOf(b, blockIdx.x - many.begin[tensor]);
  ColumnPeaks* to = peaks;
  AmaxPart seen;
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    MeasureColumns<decltype(kept)::value>(b, strip, to, seen);
  });
  seen.AddOfBlock(b.amax);
}

template <Kept kKept>
__device__ void EncodeColumns(const Blocks& b, Tile tile) {
  InTile<kKept> in(b, tile.down * kTileRows, tile.across * kTileColumns);
  const float* from = b.factors + tile.across * kTileColumns + in.column;
  float own[kWidth<kKept>];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kKept>; ++k) own[k] = k < in.end ? from[k] : 0.0f;
  Vector x[kVectors<kKept>];
  LoadHeld<kKept>(b.x.data, b.aligned, in, x);
  EncodeHeld<kKept>(x, b.e4m3, b.amax->non_finite, b.q, b.aligned, in,
                    [&](int, int k) { return own[k]; });
}

template <bool kNarrow>
__global__ void __launch_bounds__(32 * kWarps)
    EncodeColumnsKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks& b = many.tensors[tensor];
  Tile tile = TileOf(b, blockIdx.x - many.begin[tensor]);
  WithKept<kNarrow>(b.x.kept, [&](auto kept) {
    EncodeColumns<decltype(kept)::value>(b, tile);
  });
}

// ---- other blocks

constexpr int kLanes = 32, kLines = 8;
constexpr int kColumns = kLanes * kPerThread;  // of a tile
constexpr int kRows = 64;                      // of a tile

__host__ __device__ unsigned TilesAcross(const Blocks& b) {
  return static_cast<unsigned>(DivideUp(b.columns, kColumns));
}

// Where a thread begins in its block's tile of a tensor.
struct Spot {
  int64_t first, column;  // the tile's first row; of four elements
  int line;               // the first row in the tile
};

__device__ Spot SpotOf(const Blocks& b, unsigned tile) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t down = tile / TilesAcross(b), across = tile % TilesAcross(b);
  return {down * kRows, across * kColumns + lane * kPerThread, line};
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

// Raises the peaks of the blocks in block row `down` to those that a warp has
// seen. All lanes call it.
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

__global__ void __launch_bounds__(kLanes* kLines)
    PeaksKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  auto [first, column, line] = SpotOf(b, blockIdx.x - many.begin[tensor]);
  AmaxPart all;
  uint32_t seen[kPerThread] = {};
  int64_t down = -1;
  for (int r = line; r < kRows && first + r < b.rows; r += kLines) {
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
  if (b.scales) StoreScale(b.format, b.scales, i, factor);
}

template <bool kE4M3>
__global__ void __launch_bounds__(kLanes* kLines)
    EncodeBlockKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  auto [first, column, line] = SpotOf(b, blockIdx.x - many.begin[tensor]);
  if (column >= b.columns) return;
  for (int r = line; r < kRows && first + r < b.rows; r += kLines) {
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

bool IsNarrow(const Blocks& b) { return b.x.kept != Kept::kFloat; }

// A tensor's way, and what goes with it.
void ChooseWay(const BlockGrid& grid, Blocks& b) {
  int64_t width = IsNarrow(b) ? kWidth<Kept::kBFloat16> : kWidth<Kept::kFloat>;
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  bool aligned = address(b.x.data) % 16 == 0 && address(b.q) % 8 == 0;
  b.way = Way::kOthers;
  // Blocks without elements have scales, too.
  if (grid.rows == 0 || grid.columns == 0) return;
  auto has = [](int64_t block, int64_t size, int64_t wanted) {
    return block == wanted || (block == size && size <= wanted);
  };
  auto is_part = [](int64_t block) {
    return block == 32 || block == 64 || block == kTileColumns;
  };
  auto logarithm = [](int64_t power) {
    int shift = 0;
    while (int64_t{1} << shift < power) ++shift;
    return shift;
  };
  // Rows may begin in the middle of a vector.
  int64_t held = grid.columns + (grid.columns % width == 0 ? 0 : width - 1);
  int64_t most = int64_t{32} * kHeld;  // that a warp holds
  if (grid.block_rows == 1 && grid.across == 1 && held <= 16 * most) {
    b.way = Way::kRows;
    b.aligned = aligned;
    b.warps = 1;
    while (b.warps * most < held) b.warps *= 2;
    return;
  }
  b.aligned = aligned && grid.columns % width == 0;
  if (has(grid.block_rows, grid.rows, kTileColumns) &&
      has(grid.block_columns, grid.columns, kTileColumns)) {
    b.way = Way::kSquares;
  } else if (grid.block_rows == 1 && is_part(grid.block_columns)) {
    b.way = Way::kRowParts;
    b.shift = logarithm(grid.block_columns / width);
  } else if (grid.block_columns == 1 && is_part(grid.block_rows)) {
    b.way = Way::kColumnParts;
    b.shift = logarithm(grid.block_rows / kRowsOfWarp);
  } else if (grid.block_columns == 1 && grid.down == 1) {
    bool is_short = grid.rows <= kTileColumns;
    b.way = is_short ? Way::kColumnParts : Way::kColumns;
    b.shift = logarithm(kSquareWarps);
  }
}

Blocks BlocksOf(KernelContext& ctx) {
  BlockGrid grid = GridOf(ctx, Operand(ctx, 0), "block_rows", "block_columns");
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Blocks b = {.x = FloatsOf(ctx, 0),
              .rows = grid.rows,
              .columns = grid.columns,
              .block_rows = grid.block_rows,
              .block_columns = grid.block_columns,
              .across = grid.across,
              .count = grid.blocks(),
              .e4m3 = to == DType::kE4M3,
              .lanes_together = LanesTogether(grid),
              .amax = reinterpret_cast<DeviceAmax*>(ctx.OwnAmax(0)),
              .format = BlockFormatOf(ctx)};
  if (ctx.HasOut(0)) {
    b.q = static_cast<uint8_t*>(ctx.Out(0, to, Operand(ctx, 0).shape()).raw());
  }
  if (ctx.HasOut(1)) {
    b.scales = ctx.Out(1, ScaleDType(b.format), {grid.down, grid.across}).raw();
  }
  if (ctx.HasOut(2)) {
    b.amax_out = static_cast<float*>(ctx.Out(2, DType::kFloat, {}).raw());
  }
  ChooseWay(grid, b);
  return b;
}

// How many tiles have elements.
unsigned Tiles(const Blocks& b, int64_t rows, int64_t columns = kTileColumns) {
  return static_cast<unsigned>(DivideUp(b.rows, rows) *
                               DivideUp(b.columns, columns));
}

bool ReadsTwice(const Blocks& b) {
  return b.way == Way::kColumns || b.way == Way::kOthers;
}
// The factors that it leaves for its second pass, up to whole vectors.
int64_t FactorsOf(const Blocks& b) {
  return ReadsTwice(b) ? RoundUp(b.count, kPerThread) : 0;
}

// Starts the kernels that hold elements, for tensors kept in 16 bits or as
// floats, but for the second pass over columns.
template <bool kNarrow, typename Start>
void StartHeld(const Start& start) {
  auto start_rows = [&]<int kRowWarps>() {
    constexpr int kAtOnce = kRowsAtOnce<kRowWarps>;
    start(QuantizeRowsKernel<kRowWarps, kNarrow>, kRowThreads<kRowWarps>,
          [](const Blocks& b) {
            bool its = b.way == Way::kRows && b.warps == kRowWarps &&
                       IsNarrow(b) == kNarrow;
            return its ? static_cast<unsigned>(DivideUp(b.rows, kAtOnce)) : 0u;
          });
  };
  start_rows.template operator()<1>();
  start_rows.template operator()<2>();
  start_rows.template operator()<4>();
  start_rows.template operator()<8>();
  start_rows.template operator()<16>();
  // Tiles of `rows` rows, one for each block of threads.
  auto start_tiles = [&](Way way, int64_t rows, int warps,
                         void (*kernel)(Many<Blocks>)) {
    start(kernel, 32 * warps, [way, rows](const Blocks& b) {
      bool its = b.way == way && IsNarrow(b) == kNarrow;
      return its ? Tiles(b, rows) : 0u;
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

// Quantizes tensors that leave `count` factors in all.
void QuantizeAll(Queue& queue, std::span<Blocks> all, int64_t count) {
  if (count > 0) {
    size_t bytes = static_cast<size_t>(count) * sizeof(float);
    auto* factors = static_cast<float*>(queue.Scratch(bytes));
    ONNX_FP8_CUDA(cudaMemsetAsync(factors, 0, bytes, queue.stream()));
    for (Blocks& b : all) {
      if (!ReadsTwice(b)) continue;
      b.factors = factors;
      factors += FactorsOf(b);
    }
  }
  auto start = [&](void (*kernel)(Many<Blocks>), int threads, auto blocks_of) {
    ForMany(all, blocks_of, [&](const Many<Blocks>& many) {
      Launch(kernel, many.blocks, threads, 0, queue.stream(), many);
    });
  };
  StartHeld<true>(start);
  StartHeld<false>(start);
  start(PeaksKernel, kLanes * kLines, [](const Blocks& b) {
    return b.way == Way::kOthers ? Tiles(b, kRows, kColumns) : 0u;
  });
  // One block at least writes the amax.
  start(FactorsKernel, kThreads, [](const Blocks& b) {
    auto blocks = static_cast<unsigned>(DivideUp(FactorsOf(b), kThreads));
    return std::max(blocks, b.amax_out ? 1u : 0u);
  });
  for (bool narrow : {true, false}) {
    start(narrow ? EncodeColumnsKernel<true> : EncodeColumnsKernel<false>,
          32 * kWarps, [narrow](const Blocks& b) {
            bool its = b.q && b.way == Way::kColumns && IsNarrow(b) == narrow;
            return its ? Tiles(b, kTileRows) : 0u;
          });
  }
  for (bool e4m3 : {true, false}) {
    start(e4m3 ? EncodeBlockKernel<true> : EncodeBlockKernel<false>,
          kLanes * kLines, [e4m3](const Blocks& b) {
            bool its = b.q && b.way == Way::kOthers && b.e4m3 == e4m3;
            return its ? Tiles(b, kRows, kColumns) : 0u;
          });
  }
}

// The factors of tensors that are quantized at once take 256 KiB at most,
// unless one tensor has more. Such a tensor fills the GPU alone.
constexpr int64_t kMostFactors = 65536;

void QuantizeBlocks(std::span<KernelContext> nodes) {
  std::vector<Blocks> all;
  int64_t count = 0;
  for (KernelContext& ctx : nodes) {
    Blocks b = BlocksOf(ctx);
    if (!all.empty() && count + FactorsOf(b) > kMostFactors) {
      QuantizeAll(QueueOf(ctx), all, count);
      all.clear();
      count = 0;
    }
    all.push_back(b);
    count += FactorsOf(b);
  }
  QuantizeAll(QueueOf(nodes[0]), all, count);
}

void QuantizeBlock(KernelContext& ctx) { QuantizeBlocks({&ctx, 1}); }

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  r.Add("QuantizeBlock", QuantizeBlock,
        {.own_amaxes = 1, .narrow_in = {0}, .many = QuantizeBlocks}, kDomain);
}

}  // namespace onnx_fp8::cuda
