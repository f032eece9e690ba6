// SPDX-License-Identifier: Apache-2.0
//
// Codes of some rows in shared memory, from which a block of threads writes the
// transpose: so a kernel that works on rows writes both orientations and reads
// no code again. A column gets kSegment codes at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "graph/schemas/quantize_padded.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/transpose_tile.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr int kSegment = 16;
inline constexpr int kSegmentWords = kSegment / kCodes;

// From one row of a tile to the next, in words. It is odd, so threads that read
// neighboring words, or words of rows kSegment apart, meet different banks.
__host__ __device__ inline int TileStride(int64_t columns) {
  return static_cast<int>(columns / kCodes) | 1;
}

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

// ---- tiles of whole rows

// Hopper's multiprocessors, their shared memory, and what a block needs of it
// beside a tile.
inline constexpr int64_t kMultiprocessors = 132;
inline constexpr int64_t kSharedOfMultiprocessor = 228 << 10;
inline constexpr int64_t kOtherShared = 2 << 10;

inline int64_t TileBytes(int rows, int64_t columns) {
  return int64_t{4} * rows * TileStride(columns);
}

// Lets a kernel have more dynamic shared memory than all may have. It is never
// less than before, because recorded steps may hold the kernel. Errors: the GPU
// has less.
inline void AllowShared(const void* kernel, size_t bytes) {
  constexpr size_t kAllMayHave = 48 << 10;
  if (bytes <= kAllMayHave) return;
  cudaFuncAttributes known;
  ONNX_FP8_CUDA(cudaFuncGetAttributes(&known, kernel));
  int wanted = static_cast<int>(bytes);
  if (known.maxDynamicSharedSizeBytes >= wanted) return;
  ONNX_FP8_CUDA(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted));
}

// The rows of a tile of whole rows of n elements, if `blocks` blocks shall work
// on a multiprocessor at a time: a segment or, better, two. 0: such tiles don't
// fit, or fewer than three of four multiprocessors would get their blocks; then
// it is faster to read the codes again. It depends on sizes alone, because sums
// over rows have the order of tiles.
inline int TileRows(int64_t rows, int64_t n, int64_t blocks) {
  for (int tile : {2 * kSegment, kSegment}) {
    int64_t bytes = TileBytes(tile, PaddedSize(n)) + kOtherShared;
    bool fits = blocks * bytes <= kSharedOfMultiprocessor;
    bool enough = 4 * DivideUp(rows, tile) >= 3 * blocks * kMultiprocessors;
    if (fits && enough) return tile;
  }
  return 0;
}

}  // namespace onnx_fp8::cuda
