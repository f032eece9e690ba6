// SPDX-License-Identifier: Apache-2.0
//
// A matrix of bytes and its transpose, a tile of 128 x 128 for each block of
// threads, in words of four bytes of a row.
#pragma once

#include <cstdint>

#include "providers/cuda/core/device.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr int kCodes = 4;  // bytes of a word
inline constexpr int kTransposeSide = 128;
inline constexpr int kTileWords = kTransposeSide / kCodes, kTransposeWarps = 8;
inline constexpr int kTransposeThreads = kTileWords * kTransposeWarps;

// The blocks of threads along rows and columns of a matrix.
__host__ __device__ inline unsigned TilesAcross(int64_t columns) {
  return static_cast<unsigned>(DivideUp(columns, kTransposeSide));
}
inline dim3 TransposeTiles(int64_t rows, int64_t columns) {
  return dim3(TilesAcross(columns), TilesAcross(rows));
}

__device__ inline uint32_t ByteOf(uint32_t word, int i) {
  return (word >> (8 * i)) & 0xFFu;
}

// Transposes tile `across`, `down` of kMatrices matrices of one size. A thread
// reads a word of each of four rows, and turns them into words of four columns.
// First it calls load(i, row, column) for the four rows, which may start loads.
// Then it calls read(i, row, column, words) for them, which gives the word of
// each matrix, with the first byte lowest. At the end write(which, column, row,
// word) takes a word of the transpose of matrix `which`. All three are called
// for places outside of the matrix, too.
// The word of column 4·c + i is in row (i, c) of the shared tile: so threads of
// a warp write and read different banks.
template <int kMatrices, typename Load, typename Read, typename Write>
__device__ inline void TransposeTilesOf(unsigned across, unsigned down,
                                        Load load, Read read, Write write) {
  __shared__ uint32_t tile[kMatrices][kCodes][kTileWords][kTileWords + 1];
  int lane = threadIdx.x % kTileWords, warp = threadIdx.x / kTileWords;
  int64_t column = static_cast<int64_t>(across) * kTransposeSide;
  int64_t row = static_cast<int64_t>(down) * kTransposeSide;
  ONNX_FP8_KEEP_LOOP
  for (int line = warp; line < kTileWords; line += kTransposeWarps) {
    uint32_t rows[kCodes][kMatrices];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      load(i, row + line * kCodes + i, column + lane * kCodes);
    }
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      read(i, row + line * kCodes + i, column + lane * kCodes, rows[i]);
    }
    ONNX_FP8_UNROLL
    for (int m = 0; m < kMatrices; ++m) {
      ONNX_FP8_UNROLL
      for (int i = 0; i < kCodes; ++i) {
        tile[m][i][lane][line] =
            ByteOf(rows[0][m], i) | ByteOf(rows[1][m], i) << 8 |
            ByteOf(rows[2][m], i) << 16 | ByteOf(rows[3][m], i) << 24;
      }
    }
  }
  __syncthreads();
  for (int i = warp; i < kTransposeSide; i += kTransposeWarps) {
    for (int m = 0; m < kMatrices; ++m) {
      write(m, column + i, row + lane * kCodes,
            tile[m][i % kCodes][i / kCodes][lane]);
    }
  }
}

// The same for one matrix: read(row, column) returns the word.
template <typename Read, typename Write>
__device__ inline void TransposeTile(unsigned across, unsigned down, Read read,
                                     Write write) {
  TransposeTilesOf<1>(
      across, down, [](int, int64_t, int64_t) {},
      [&](int, int64_t row, int64_t column, uint32_t(&words)[1]) {
        words[0] = read(row, column);
      },
      [&](int, int64_t column, int64_t row, uint32_t word) {
        write(column, row, word);
      });
}

}  // namespace onnx_fp8::cuda
