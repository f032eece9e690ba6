// SPDX-License-Identifier: Apache-2.0
//
// Products of tiles in shared memory, in float: for kernels that can't leave
// them to cuBLASLt. A block has 16 x 16 threads. It computes a tile of 64 x 64
// products of rows, of which each thread has 4 x 4.
#pragma once

#include <cstdint>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/load_store.h"

namespace onnx_fp8::cuda {

inline constexpr int kSide = 64;  // rows and columns of a tile
inline constexpr int kEdge = 16;  // threads along a side
inline constexpr int kTileThreads = kEdge * kEdge;
inline constexpr int kPatch = kSide / kEdge;  // of a thread, in both directions
// Elements of the rows that lie in shared memory at a time. Four more keep the
// rows apart: threads that read 16 bytes of neighboring rows meet no conflict.
inline constexpr int kDepth = 32;
inline constexpr int kDepthStride = kDepth + 4;

// Rows of `width` elements of a tensor, `stride` elements apart, which are
// rounded before they are multiplied. REQUIRES: `at` and `stride` are multiples
// of `width`.
struct TensorRows {
  FloatsIn x;
  int64_t at, stride, count, width;
  Storage rounded = Storage::kFloat;
};

// The same of a result.
struct ResultRows {
  FloatsOut y;
  int64_t at, stride, count, width;
};

// The place of a thread in its block.
__device__ inline int Across() { return static_cast<int>(threadIdx.x) % kEdge; }
__device__ inline int Down() { return static_cast<int>(threadIdx.x) / kEdge; }

// Four floats in shared memory.
__device__ inline void ReadShared(const float* from, float (&x)[4]) {
  float4 v = *reinterpret_cast<const float4*>(from);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}
__device__ inline void WriteShared(float* to, const float (&x)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

// Elements column … column+3 of a row, rounded; zeros where there are none.
// REQUIRES: column >= 0 is a multiple of 4.
__device__ inline void ReadRow(const TensorRows& rows, int64_t row,
                               int64_t column, float (&x)[4]) {
  for (int k = 0; k < 4; ++k) x[k] = 0;
  int64_t left = rows.width - column;
  if (row < 0 || row >= rows.count || left <= 0) return;
  int64_t at = rows.at + row * rows.stride + column;
  if (rows.width % 4 == 0) {
    Load4(rows.x, at, x);
  } else {
    for (int k = 0; k < 4; ++k) {
      if (k < left) x[k] = Load(rows.x, at + k);
    }
  }
  if (rows.rounded == rows.x.storage) return;
  for (int k = 0; k < 4; ++k) x[k] = Rounded(rows.rounded, x[k]);
}

// Stores elements column … column+3 of a row, as far as there are any.
__device__ inline void WriteRow(const ResultRows& rows, int64_t row,
                                int64_t column, float (&x)[4], AmaxPart& seen) {
  int64_t left = rows.width - column;
  if (row >= rows.count || left <= 0) return;
  int64_t at = rows.at + row * rows.stride + column;
  if (rows.width % 4 == 0) {
    Store4(rows.y, at, x);
    for (int k = 0; k < 4; ++k) seen.Add(x[k]);
  } else {
    for (int k = 0; k < 4; ++k) {
      if (k < left) seen.Add(Store(rows.y, at + k, x[k]));
    }
  }
}

// Elements column … column+31 of kSide rows, from row `first` on.
__device__ inline void StageRows(const TensorRows& rows, int64_t first,
                                 int64_t column, float (*to)[kDepthStride]) {
  constexpr int kVectors = kDepth / 4;  // of a row
  ONNX_FP8_UNROLL
  for (int i = 0; i < kSide * kVectors / kTileThreads; ++i) {
    int vector = i * kTileThreads + static_cast<int>(threadIdx.x);
    int row = vector / kVectors, at = vector % kVectors * 4;
    float x[4];
    ReadRow(rows, first + row, column + at, x);
    WriteShared(&to[row][at], x);
  }
}

// sums[i][j] += the product of row 4 · Down() + i of a and row
// Across() + 16 · j of b, over their first `depth` elements, a multiple of 4.
__device__ inline void AddProducts(const float (*a)[kDepthStride],
                                   const float (*b)[kDepthStride], int depth,
                                   float (&sums)[kPatch][kPatch]) {
  const float* left = a[kPatch * Down()];
  const float* right = b[Across()];
  ONNX_FP8_KEEP_LOOP
  for (int k = 0; k < depth; k += 4) {
    float u[kPatch][4];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      ReadShared(left + i * kDepthStride + k, u[i]);
    }
    ONNX_FP8_UNROLL
    for (int j = 0; j < kPatch; ++j) {
      float v[4];
      ReadShared(right + j * kEdge * kDepthStride + k, v);
      ONNX_FP8_UNROLL
      for (int i = 0; i < kPatch; ++i) {
        ONNX_FP8_UNROLL
        for (int l = 0; l < 4; ++l)
          sums[i][j] = fmaf(u[i][l], v[l], sums[i][j]);
      }
    }
  }
}

}  // namespace onnx_fp8::cuda
