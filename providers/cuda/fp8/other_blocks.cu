// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock for blocks of any size. Traffic: x is read twice, once for the
// amaxes of the blocks, and q is written once.
#include "providers/cuda/core/encode.h"
#include "providers/cuda/fp8/blocks.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kLines = 8;
constexpr int kColumns = kLanes * kPerThread;  // of a tile
constexpr int kRows = 64;                      // of a tile

__host__ __device__ unsigned TilesOfRow(const Blocks& b) {
  return static_cast<unsigned>(DivideUp(b.columns, kColumns));
}

// Where a thread begins in its block's tile of a tensor.
struct Spot {
  int64_t first, column;  // the tile's first row; of four elements
  int line;               // the first row in the tile
};

__device__ Spot SpotOf(const Blocks& b, unsigned tile) {
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t down = tile / TilesOfRow(b), across = tile % TilesOfRow(b);
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

}  // namespace

void MeasureOthers(cudaStream_t stream, std::span<Blocks> all) {
  StartBlocks(stream, all, PeaksKernel, kLanes * kLines, [](const Blocks& b) {
    return b.way == Way::kOthers ? Tiles(b, kRows, kColumns) : 0u;
  });
}

void EncodeOthers(cudaStream_t stream, std::span<Blocks> all) {
  for (bool e4m3 : {true, false}) {
    StartBlocks(stream, all,
                e4m3 ? EncodeBlockKernel<true> : EncodeBlockKernel<false>,
                kLanes * kLines, [e4m3](const Blocks& b) {
                  bool its = b.q && b.way == Way::kOthers && b.e4m3 == e4m3;
                  return its ? Tiles(b, kRows, kColumns) : 0u;
                });
  }
}

}  // namespace onnx_fp8::cuda
