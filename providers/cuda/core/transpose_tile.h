// SPDX-License-Identifier: Apache-2.0
//
// A matrix of bytes and its transpose, a tile of 128 x 128 for each block of
// threads, in words of four bytes of a row.
#pragma once

#include <cstdint>

#include "providers/cuda/core/device.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr int kCodes = 4;  // bytes of a word
inline constexpr int kTransposeSide = 128;
inline constexpr int kTileWords = kTransposeSide / kCodes, kTransposeWarps = 8;
inline constexpr int kTransposeThreads = kTileWords * kTransposeWarps;

// The blocks of threads for a matrix (rows, columns).
inline dim3 TransposeTiles(int64_t rows, int64_t columns) {
  return dim3(static_cast<unsigned>(DivideUp(columns, kTransposeSide)),
              static_cast<unsigned>(DivideUp(rows, kTransposeSide)));
}

__device__ inline uint32_t ByteOf(uint32_t word, int i) {
  return (word >> (8 * i)) & 0xFFu;
}

// read(row, column) gives the word of the matrix that begins there, its first
// byte lowest; write(row, column, word) takes that of the transpose. Both are
// called beyond the matrix, too. A thread reads words of four rows, and turns
// them into words of four columns. The word of column 4·c + i is in row (i, c)
// of the shared tile: so threads of a warp write and read different banks.
template <typename Read, typename Write>
__device__ inline void TransposeTile(Read read, Write write) {
  __shared__ uint32_t tile[kCodes][kTileWords][kTileWords + 1];
  int lane = threadIdx.x % kTileWords, warp = threadIdx.x / kTileWords;
  int64_t column = static_cast<int64_t>(blockIdx.x) * kTransposeSide;
  int64_t row = static_cast<int64_t>(blockIdx.y) * kTransposeSide;
  for (int line = warp; line < kTileWords; line += kTransposeWarps) {
    uint32_t rows[kCodes];
    for (int i = 0; i < kCodes; ++i) {
      rows[i] = read(row + line * kCodes + i, column + lane * kCodes);
    }
    for (int i = 0; i < kCodes; ++i) {
      tile[i][lane][line] = ByteOf(rows[0], i) | ByteOf(rows[1], i) << 8 |
                            ByteOf(rows[2], i) << 16 | ByteOf(rows[3], i) << 24;
    }
  }
  __syncthreads();
  for (int i = warp; i < kTransposeSide; i += kTransposeWarps) {
    write(column + i, row + lane * kCodes, tile[i % kCodes][i / kCodes][lane]);
  }
}

}  // namespace onnx_fp8::cuda
