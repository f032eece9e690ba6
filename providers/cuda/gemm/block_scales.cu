// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/gemm/block_scales.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

// cuBLASLt pads the rows of scales.
constexpr int64_t kRowUnit = 4;

struct PackedGrid {
  int64_t rows, columns;  // columns are padded
  bool k_is_rows;
};

PackedGrid GridOf(ScaleMode mode, int64_t outer, int64_t k) {
  if (mode == ScaleMode::kVector128) return {k, RoundUp(outer, kRowUnit), true};
  return {outer, RoundUp(k, kRowUnit), false};
}

__device__ int64_t PlaceOf(const BlockScales& x, int64_t outer, int64_t k) {
  return x.k_is_rows ? k * x.outer + outer : outer * x.k + k;
}

__global__ void __launch_bounds__(kThreads)
    PackScalesKernel(BlockScales x, PackedGrid grid, float* to) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= grid.rows * grid.columns) return;
  int64_t row = at / grid.columns, column = at % grid.columns;
  int64_t outer = grid.k_is_rows ? column : row;
  int64_t k = grid.k_is_rows ? row : column;
  bool inside = outer < x.outer && k < x.k;
  auto* from = static_cast<const float*>(x.data);
  to[at] = inside ? from[PlaceOf(x, outer, k)] : 0.0f;
}

// The tiles of kMx.
constexpr int64_t kTileOuter = 128, kTileK = 4, kTileBytes = 512;

__global__ void __launch_bounds__(kThreads)
    PackMxKernel(BlockScales x, int64_t tiles_k, int64_t bytes, uint8_t* to) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= bytes) return;
  int64_t tile = at / kTileBytes, place = at % kTileBytes;
  int64_t outer =
      tile / tiles_k * kTileOuter + place / 16 + place % 16 / kTileK * 32;
  int64_t k = tile % tiles_k * kTileK + place % kTileK;
  bool inside = outer < x.outer && k < x.k;
  auto* from = static_cast<const uint8_t*>(x.data);
  to[at] = inside ? from[PlaceOf(x, outer, k)] : uint8_t{0};
}

}  // namespace

int64_t PackedBytes(ScaleMode mode, int64_t outer, int64_t k) {
  if (mode == ScaleMode::kMx) {
    return DivideUp(outer, kTileOuter) * DivideUp(k, kTileK) * kTileBytes;
  }
  PackedGrid grid = GridOf(mode, outer, k);
  return grid.rows * grid.columns * 4;
}

void PackScales(const Queue& queue, const BlockScales& x, ScaleMode mode,
                int64_t outer, void* to) {
  int64_t bytes = PackedBytes(mode, outer, x.k);
  if (mode == ScaleMode::kMx) {
    Launch(PackMxKernel, static_cast<unsigned>(DivideUp(bytes, kThreads)),
           kThreads, 0, queue.stream(), x, DivideUp(x.k, kTileK), bytes,
           static_cast<uint8_t*>(to));
    return;
  }
  Launch(PackScalesKernel, static_cast<unsigned>(DivideUp(bytes / 4, kThreads)),
         kThreads, 0, queue.stream(), x, GridOf(mode, outer, x.k),
         static_cast<float*>(to));
}

}  // namespace onnx_fp8::cuda
