// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock. Bytes and scales are the CPU's. Traffic: x is read twice, once
// for the amaxes of the blocks, and q is written once.
#include <limits>

#include "providers/block_grid.h"
#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/block_factor.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
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
  uint32_t* peaks;     // the bits of each block's amax
  DeviceAmax* amax;    // of all
  float* factors;
  BlockFormat format;
  void* scales;
  float* amax_out;
  uint8_t* q;
};

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
  uint32_t* peaks = b.peaks + down * b.across;
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

__global__ void __launch_bounds__(kLanes* kLines) PeaksKernel(Blocks b) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t column = static_cast<int64_t>(blockIdx.y) * kColumns +
                   static_cast<int64_t>(lane) * kPerThread;
  int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
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

__global__ void __launch_bounds__(kThreads) FactorsKernel(Blocks b) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i == 0 && b.amax_out) {
    *b.amax_out = b.amax->non_finite ? std::numeric_limits<float>::infinity()
                                     : __uint_as_float(b.amax->finite);
  }
  if (i >= b.count) return;
  float factor = BlockFactor(b.format, __uint_as_float(b.peaks[i]));
  b.factors[i] = factor;
  if (b.scales) StoreScale(b.format, b.scales, i, factor);
}

template <bool kE4M3>
__global__ void __launch_bounds__(kLanes* kLines) EncodeBlockKernel(Blocks b) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t column = static_cast<int64_t>(blockIdx.y) * kColumns +
                   static_cast<int64_t>(lane) * kPerThread;
  if (column >= b.columns) return;
  int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
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

Blocks BlocksOf(KernelContext& ctx, const BlockGrid& grid) {
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Blocks b = {.x = FloatsOf(ctx, 0),
              .rows = grid.rows,
              .columns = grid.columns,
              .block_rows = grid.block_rows,
              .block_columns = grid.block_columns,
              .across = grid.across,
              .count = grid.blocks(),
              .lanes_together = LanesTogether(grid),
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
  return b;
}

void QuantizeBlock(KernelContext& ctx) {
  BlockGrid grid = GridOf(ctx, Operand(ctx, 0), "block_rows", "block_columns");
  Blocks b = BlocksOf(ctx, grid);
  Queue& queue = QueueOf(ctx);
  auto blocks = static_cast<size_t>(b.count);
  size_t to_clear = sizeof(DeviceAmax) + blocks * sizeof(uint32_t);
  auto* scratch =
      static_cast<char*>(queue.Scratch(to_clear + blocks * sizeof(float)));
  b.amax = reinterpret_cast<DeviceAmax*>(scratch);
  b.peaks = reinterpret_cast<uint32_t*>(scratch + sizeof(DeviceAmax));
  b.factors = reinterpret_cast<float*>(scratch + to_clear);
  ONNX_FP8_CUDA(cudaMemsetAsync(scratch, 0, to_clear, queue.stream()));
  dim3 tiles(static_cast<unsigned>(DivideUp(b.rows, kRows)),
             static_cast<unsigned>(DivideUp(b.columns, kColumns)));
  bool empty = b.rows == 0 || b.columns == 0;
  if (!empty) {
    Launch(PeaksKernel, tiles, kLanes * kLines, 0, queue.stream(), b);
  }
  auto for_blocks = static_cast<unsigned>(DivideUp(b.count, kThreads));
  Launch(FactorsKernel, std::max(for_blocks, 1u), kThreads, 0, queue.stream(),
         b);
  if (!empty && b.q) {
    auto to = static_cast<DType>(ctx.Int("to", 0));
    Launch(
        to == DType::kE4M3 ? EncodeBlockKernel<true> : EncodeBlockKernel<false>,
        tiles, kLanes * kLines, 0, queue.stream(), b);
  }
}

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  r.Add("QuantizeBlock", QuantizeBlock, {.narrow_in = {0}}, kDomain);
}

}  // namespace onnx_fp8::cuda
