// SPDX-License-Identifier: Apache-2.0
//
// Sums of the columns of a tile that a block of threads quantizes
// (turned_tile.h). A thread adds its rows, then the block adds those sums, both
// in a fixed order.
#pragma once

#include <cstdint>

#include "providers/cuda/fp8/turned_tile.h"

namespace onnx_fp8::cuda {

// For each group of rows that one thread holds, sums of the tile's columns.
template <Kept kKept>
inline constexpr int kRowGroups = kTransposeSide / kVectors<kKept>;
struct TileOfSums {
  alignas(16) float sums[kRowGroups<Kept::kBFloat16>][kTransposeSide];
};

template <Kept kKept>
__device__ void PutColumnSums(const Vector (&x)[kVectors<kKept>],
                              const Group<kKept>& in, TileOfSums& tile) {
  float sum[kWidth<kKept>];
  FloatsOfVector<kKept>(x[0], sum);
  ONNX_FP8_UNROLL
  for (int v = 1; v < kVectors<kKept>; ++v) {
    float more[kWidth<kKept>];
    FloatsOfVector<kKept>(x[v], more);
    ONNX_FP8_UNROLL
    for (int k = 0; k < kWidth<kKept>; ++k) sum[k] += more[k];
  }
  auto* to = reinterpret_cast<float4*>(tile.sums[in.row / kVectors<kKept>] +
                                       in.column);
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kKept>; k += 4) {
    to[k / 4] = make_float4(sum[k], sum[k + 1], sum[k + 2], sum[k + 3]);
  }
}

// Writes the sums of a tile of `groups` groups, of which `left` columns exist.
__device__ inline void WriteColumnSums(const TileOfSums& tile, int groups,
                                       int64_t left, float* to) {
  int own = static_cast<int>(threadIdx.x);
  if (own >= kTransposeSide || own >= left) return;
  float sum = 0;
  for (int g = 0; g < groups; ++g) sum += tile.sums[g][own];
  to[own] = sum;
}

}  // namespace onnx_fp8::cuda
