// SPDX-License-Identifier: Apache-2.0
//
// Codes of a tile in shared memory, from which a block of threads writes the
// transpose: so a kernel writes both orientations and reads no code again. A
// column gets kSegment codes at a time.
#pragma once

#include <cstdint>

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/transpose_tile.h"

namespace onnx_fp8::cuda {

inline constexpr int kSegment = 16;
inline constexpr int kSegmentWords = kSegment / kCodes;

// The word of row i of each of four rows becomes a word of column i.
__device__ inline uint32_t WordOfColumn(const uint32_t (&rows)[kCodes], int i) {
  return ByteOf(rows[0], i) | ByteOf(rows[1], i) << 8 |
         ByteOf(rows[2], i) << 16 | ByteOf(rows[3], i) << 24;
}

// Codes first … first+15 of a column of the transpose.
__device__ inline void StoreSegment(const Result& r, int64_t column,
                                    int64_t first,
                                    const uint32_t (&words)[kSegmentWords]) {
  uint8_t* to = r.q_transposed + column * r.sizes.to_rows + first;
  if (r.sizes.to_rows % kSegment == 0) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  ONNX_FP8_UNROLL
  for (int j = 0; j < kSegmentWords; ++j) {
    if (first + j * kCodes >= r.sizes.to_rows) return;
    reinterpret_cast<uint32_t*>(to)[j] = words[j];
  }
}

// The transpose of a tile of `rows` rows and `words` words of codes, which
// begins at `row` and `column`. REQUIRES: `rows` is a multiple of kSegment, all
// threads of the block call it after they have written the tile.
__device__ inline void WriteTransposed(const Result& r, const uint32_t* tile,
                                       int stride, int64_t row, int rows,
                                       int64_t column, int words) {
  __syncthreads();
  int segments = rows / kSegment;
  for (int i = static_cast<int>(threadIdx.x); i < words * segments;
       i += static_cast<int>(blockDim.x)) {
    int word = i / segments, line = i % segments * kSegment;
    if (row + line >= r.sizes.to_rows) continue;
    const uint32_t* from = tile + line * stride + word;
    uint32_t columns[kCodes][kSegmentWords];
    ONNX_FP8_UNROLL
    for (int j = 0; j < kSegmentWords; ++j) {
      uint32_t of_rows[kCodes] = {};
      if (row + line + j * kCodes < r.sizes.to_rows) {
        ONNX_FP8_UNROLL
        for (int k = 0; k < kCodes; ++k) {
          of_rows[k] = from[(j * kCodes + k) * stride];
        }
      }
      ONNX_FP8_UNROLL
      for (int k = 0; k < kCodes; ++k) columns[k][j] = WordOfColumn(of_rows, k);
    }
    ONNX_FP8_UNROLL
    for (int k = 0; k < kCodes; ++k) {
      StoreSegment(r, column + word * kCodes + k, row + line, columns[k]);
    }
  }
  __syncthreads();
}

}  // namespace onnx_fp8::cuda
