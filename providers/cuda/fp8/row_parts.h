// SPDX-License-Identifier: Apache-2.0
//
// Parts of rows that have a scale each. A part belongs to neighboring lanes.
#pragma once

#include <cstdint>

#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/held.h"

namespace onnx_fp8::cuda {

// The factor of each vector that a thread holds, and the scales of the parts.
// b.shift: 2^shift lanes hold a part. The tile begins at row `first_row` and is
// number `across` in it. In::RowOf(v, lane) is the row in the tile of vector v
// of a lane. Lane i computes the factor of the warp's part i.
template <Storage kStorage, typename In>
__device__ void FactorsOfRowParts(const Blocks& b,
                                  const Vector (&x)[kVectors<kStorage>],
                                  int64_t first_row, int64_t across,
                                  AmaxPart& seen,
                                  float (&factors)[kVectors<kStorage>]) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  constexpr int kCount = kVectors<kStorage>;
  uint32_t peaks[kCount];
  FinitePeaks<kStorage>(x, seen, peaks);
  LargestOfLanes(1 << b.shift, peaks);
  int lane = threadIdx.x % 32;
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
  int64_t row = first_row + In::RowOf(vector, leader);
  int in_row = leader % In::kAcross >> b.shift;  // the part in the tile's row
  int64_t part = (across * (In::kAcross >> b.shift)) + in_row;
  if (b.scales && vector < kCount && row < b.rows && part < b.across) {
    StoreScale(b.format, b.scales, row * b.across + part, factor);
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    factors[v] =
        __shfl_sync(kAll, factor, (v << groups_shift) + (lane >> b.shift));
  }
}

}  // namespace onnx_fp8::cuda
