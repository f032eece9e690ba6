// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock. Bytes and scales are the CPU's. One kernel quantizes many
// tensors. Traffic: x is read twice, once for the amaxes of the blocks, and q
// is written once.
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
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kLanes = 32, kLines = 8;
constexpr int kColumns = kLanes * kPerThread;  // of a tile
constexpr int kRows = 64;                      // of a tile

struct Blocks {
  FloatsIn x;
  int64_t rows, columns, block_rows, block_columns, across, count;
  int lanes_together;  // neighbors whose elements lie in one block
  float* factors;      // of each block; before they are known, its amax
  DeviceAmax* amax;    // of all
  BlockFormat format;
  void* scales;
  float* amax_out;
  uint8_t* q;
  bool e4m3;  // else E5M2

  __host__ __device__ unsigned TilesAcross() const {
    return static_cast<unsigned>(DivideUp(columns, kColumns));
  }
};

// Where a thread begins in its block's tile of a tensor.
struct Spot {
  int64_t first, column;  // the tile's first row; of four elements
  int line;               // the first row in the tile
};

__device__ Spot SpotOf(const Blocks& b, unsigned tile) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t down = tile / b.TilesAcross(), across = tile % b.TilesAcross();
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
  all.AddTo(b.amax);
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
  if (i >= b.count) return;
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
      codes |= Encode<kE4M3>(x[k] * factor) << 8 * k;
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
              .lanes_together = LanesTogether(grid),
              .amax = reinterpret_cast<DeviceAmax*>(ctx.OwnAmax(0)),
              .format = BlockFormatOf(ctx),
              .e4m3 = to == DType::kE4M3};
  if (ctx.HasOut(0)) {
    b.q = static_cast<uint8_t*>(ctx.Out(0, to, Operand(ctx, 0).shape()).raw());
  }
  if (ctx.HasOut(1)) {
    b.scales = ctx.Out(1, ScaleDType(b.format), {grid.down, grid.across}).raw();
  }
  if (ctx.HasOut(2)) {
    b.amax_out = static_cast<float*>(ctx.Out(2, DType::kFloat, {}).raw());
  }
  return b;
}

// Tiles that have elements.
unsigned TilesOf(const Blocks& b) {
  return static_cast<unsigned>(DivideUp(b.rows, kRows)) * b.TilesAcross();
}

// Quantizes tensors that have `count` blocks in all.
void QuantizeAll(Queue& queue, std::span<Blocks> all, int64_t count) {
  size_t bytes = static_cast<size_t>(count) * sizeof(float);
  auto* factors = static_cast<float*>(queue.Scratch(bytes));
  if (count > 0) {
    ONNX_FP8_CUDA(cudaMemsetAsync(factors, 0, bytes, queue.stream()));
  }
  for (Blocks& b : all) {
    b.factors = factors;
    factors += b.count;
  }
  auto start = [&](void (*kernel)(Many<Blocks>), int threads, auto blocks_of) {
    ForMany(all, blocks_of, [&](const Many<Blocks>& many) {
      Launch(kernel, many.blocks, threads, 0, queue.stream(), many);
    });
  };
  start(PeaksKernel, kLanes * kLines, TilesOf);
  // One block at least writes the amax.
  start(FactorsKernel, kThreads, [](const Blocks& b) {
    return std::max(static_cast<unsigned>(DivideUp(b.count, kThreads)), 1u);
  });
  for (bool e4m3 : {true, false}) {
    start(e4m3 ? EncodeBlockKernel<true> : EncodeBlockKernel<false>,
          kLanes * kLines, [e4m3](const Blocks& b) {
            return b.q && b.e4m3 == e4m3 ? TilesOf(b) : 0;
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
    if (!all.empty() && count + b.count > kMostFactors) {
      QuantizeAll(QueueOf(ctx), all, count);
      all.clear();
      count = 0;
    }
    all.push_back(b);
    count += b.count;
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
