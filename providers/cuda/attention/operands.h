// SPDX-License-Identifier: Apache-2.0
//
// What attention's kernels share: their operands, the score of a row and a
// column, and products with tiles of scores.
#pragma once

#include <cstdint>
#include <limits>

#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/tiles.h"
#include "providers/ops/attention_sizes.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr float kLog2OfE = 1.4426950408889634f;
inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Sizes as in AttentionSizes. Null: the op has no such operand.
struct AttentionOperands {
  int64_t b, t, s, heads, groups, d, e;
  float scale;
  bool causal;
  Storage rounded;  // probabilities and gradients of scores, for products
  Storage read;     // q, k, v and dy, for products
  int64_t bias_step[4];
  HeadLayout q_at, k_at, v_at, y_at;
  FloatsIn q, k, v, dy;
  const float *relative, *bias, *lse;
  const int32_t* segments;
};

// e^x, as 2^x is cheaper. x is the difference of two scores: scores near the
// largest float would not survive the factor.
__device__ inline float Power(float x) { return exp2f(x * kLog2OfE); }

inline AttentionOperands OperandsOf(const KernelContext& ctx,
                                    const AttentionSizes& z,
                                    const AttentionInputs& in) {
  auto data = [&](size_t i) {
    return static_cast<const float*>(Operand(ctx, i).raw());
  };
  AttentionOperands a = {
      .b = z.b,
      .t = z.t,
      .s = z.s,
      .heads = z.heads,
      .groups = z.groups,
      .d = z.d,
      .e = z.e,
      .scale = z.scale,
      .causal = z.causal,
      .rounded =
          IsHalf(z.round_to) ? StorageOf(ctx, z.round_to) : Storage::kFloat,
      .read =
          z.round_to == DType::kBFloat16 ? Storage::kBFloat16 : Storage::kFloat,
      .bias_step = {z.bias_step[0], z.bias_step[1], z.bias_step[2],
                    z.bias_step[3]},
      .q_at = z.q,
      .k_at = z.k,
      .v_at = z.v,
      .y_at = z.y,
      .q = FloatsOf(ctx, in.operand(0)),
      .k = FloatsOf(ctx, in.operand(1)),
      .v = FloatsOf(ctx, in.operand(2)),
      .dy = {},
      .relative = in.has_relative ? data(in.relative()) : nullptr,
      .bias = in.has_bias ? data(in.bias()) : nullptr,
      .lse = nullptr,
      .segments = in.has_segments ? static_cast<const int32_t*>(
                                        Operand(ctx, in.segments()).raw())
                                  : nullptr};
  return a;
}

// Columns of a result that one block computes, as a number of kSide columns: 1,
// 2 or 4. If a result is wider, several blocks compute the same scores.
inline int PartsOf(int64_t width) {
  return width <= kSide ? 1 : width <= 2 * kSide ? 2 : 4;
}
inline int64_t ChunksOf(int64_t width, int parts) {
  return width == 0 ? 1 : DivideUp(width, parts * kSide);
}

// ---- on the device

// The work of a block: blocks of one head follow each other.
struct AttentionBlock {
  int64_t tile, chunk, head;
};

__device__ inline AttentionBlock BlockOf(int64_t tiles, int64_t chunks) {
  int64_t i = blockIdx.x;
  return {i % tiles, i / tiles % chunks, i / tiles / chunks};
}

// One head of one batch.
struct AttentionHead {
  int64_t batch, head;
  const float *relative, *bias;  // of this head
};

__device__ inline AttentionHead HeadOf(const AttentionOperands& z,
                                       int64_t batch, int64_t head) {
  AttentionHead h = {batch, head, nullptr, nullptr};
  if (z.relative) {
    // The bias at row 0 and column 0.
    h.relative = z.relative + head * (z.t + z.s - 1) + z.t - 1;
  }
  if (z.bias) {
    h.bias = z.bias + batch * z.bias_step[0] + head * z.bias_step[1];
  }
  return h;
}

// The least and the largest segment of kSide rows from `first` on.
struct SegmentRange {
  int32_t least, most;
};

// All threads of the warp call it, and get the same.
__device__ inline SegmentRange RangeOf(const int32_t* segments, int64_t first,
                                       int64_t count) {
  constexpr int kWarp = 32;
  SegmentRange range = {segments[first], segments[first]};
  for (int64_t i = first + static_cast<int>(threadIdx.x) % kWarp;
       i < first + kSide && i < count; i += kWarp) {
    range.least = segments[i] < range.least ? segments[i] : range.least;
    range.most = segments[i] > range.most ? segments[i] : range.most;
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    int32_t least = __shfl_xor_sync(0xFFFFFFFFu, range.least, lanes);
    int32_t most = __shfl_xor_sync(0xFFFFFFFFu, range.most, lanes);
    range.least = least < range.least ? least : range.least;
    range.most = most > range.most ? most : range.most;
  }
  return range;
}

inline constexpr int kTileStride = kSide + 4;

struct alignas(16) AttentionMemory {
  float stage[2 * kSide * kDepthStride];
  float tile[kSide][kTileStride];
  // The segments of a tile of scores, because registers are scarce.
  int32_t row_segments[kSide], column_segments[kSide];
};

// False only if no row of a tile sees any of its columns because their segments
// differ. Otherwise the tile's segments lie in `m` after the next barrier. All
// threads of the block call it, and get the same. kBySegment: z.segments exist;
// kernels that know need fewer registers.
template <bool kBySegment>
__device__ inline bool MayMeet(const AttentionOperands& z,
                               const AttentionHead& h, int64_t row,
                               int64_t column, AttentionMemory& m) {
  if (!kBySegment) return true;
  const int32_t* segments = z.segments + h.batch * z.t;
  SegmentRange rows = RangeOf(segments, row, z.t);
  SegmentRange columns = RangeOf(segments, column, z.s);
  if (rows.least > columns.most || columns.least > rows.most) return false;
  __syncthreads();  // all have compared the segments of the tile before
  int i = static_cast<int>(threadIdx.x);
  if (i < kSide) {
    m.row_segments[i] = row + i < z.t ? segments[row + i] : 0;
    m.column_segments[i] = column + i < z.s ? segments[column + i] : 0;
  }
  return true;
}

// The first element of a head.
__device__ inline int64_t PlaceOf(const HeadLayout& x, int64_t batch,
                                  int64_t head) {
  return x.first + batch * x.batch + head * x.head;
}

__device__ inline TensorRows QueryRows(const AttentionOperands& z,
                                       const AttentionHead& h) {
  return {z.q, PlaceOf(z.q_at, h.batch, h.head), z.q_at.row, z.t, z.d, z.read};
}
// Rows of the gradient of y.
__device__ inline TensorRows GradientRows(const AttentionOperands& z,
                                          const AttentionHead& h) {
  return {z.dy, PlaceOf(z.y_at, h.batch, h.head), z.y_at.row, z.t, z.e, z.read};
}
__device__ inline TensorRows KeyRows(const AttentionOperands& z,
                                     const AttentionHead& h) {
  int64_t group = h.head / (z.heads / z.groups);
  return {z.k, PlaceOf(z.k_at, h.batch, group), z.k_at.row, z.s, z.d, z.read};
}
__device__ inline TensorRows ValueRows(const AttentionOperands& z,
                                       const AttentionHead& h) {
  int64_t group = h.head / (z.heads / z.groups);
  return {z.v, PlaceOf(z.v_at, h.batch, group), z.v_at.row, z.s, z.e, z.read};
}

// A tile of scores of one head. Rows and columns count from its first ones.
struct ScoreTile {
  int64_t row, column;           // the first ones; the column may be negative
  int rows, begin, end;          // rows and columns that exist
  int diagonal;                  // row i sees the columns up to i + diagonal
  const float *relative, *bias;  // of row 0 and column 0, or null
  bool by_segment;               // a row sees columns of its own segment

  __device__ bool Sees(int i, int j, const AttentionMemory& m) const {
    return i < rows && j >= begin && j < end && j - i <= diagonal &&
           (!by_segment || m.row_segments[i] == m.column_segments[j]);
  }
};

// x, as a place in a tile or beside it.
__device__ inline int InTile(int64_t x) {
  return x < -kSide ? -kSide : x > kSide ? kSide : static_cast<int>(x);
}

__device__ inline ScoreTile TileOf(const AttentionOperands& z,
                                   const AttentionHead& h, int64_t row,
                                   int64_t column, bool by_segment) {
  ScoreTile t = {row,
                 column,
                 InTile(z.t - row),
                 InTile(-column),
                 InTile(z.s - column),
                 z.causal ? InTile(row - column) : kSide,
                 nullptr,
                 nullptr,
                 by_segment};
  if (h.relative) t.relative = h.relative + column - row;
  if (h.bias) {
    t.bias = h.bias + row * z.bias_step[2] + column * z.bias_step[3];
  }
  return t;
}

// Row and column of a thread's element [i][j]: as MultiplyRows gives them for
// queries and keys, or for keys and queries.
template <bool kKeysFirst>
__device__ inline int RowOf(int i, int j) {
  return kKeysFirst ? Across() + kEdge * j : kPatch * Down() + i;
}
template <bool kKeysFirst>
__device__ inline int ColumnOf(int i, int j) {
  return kKeysFirst ? kPatch * Down() + i : Across() + kEdge * j;
}

// Turns products of queries and keys into scores.
template <bool kKeysFirst>
__device__ inline void FinishScores(const AttentionOperands& z,
                                    const ScoreTile& t,
                                    const AttentionMemory& m,
                                    float (&s)[kPatch][kPatch]) {
  ONNX_FP8_UNROLL
  for (int i = 0; i < kPatch; ++i) {
    ONNX_FP8_UNROLL
    for (int j = 0; j < kPatch; ++j) s[i][j] *= z.scale;
  }
  if (!t.relative && !t.bias) return;
  ONNX_FP8_UNROLL
  for (int i = 0; i < kPatch; ++i) {
    ONNX_FP8_UNROLL
    for (int j = 0; j < kPatch; ++j) {
      int row = RowOf<kKeysFirst>(i, j), column = ColumnOf<kKeysFirst>(i, j);
      if (!t.Sees(row, column, m)) continue;
      if (t.relative) s[i][j] += t.relative[column - row];
      if (t.bias) {
        int64_t at = row * z.bias_step[2] + column * z.bias_step[3];
        s[i][j] += t.bias[at];
      }
    }
  }
}

// The sum over the 16 threads that share a row. All threads of the warp call
// it.
__device__ inline float SumOfLine(float x) {
  for (int lanes = kEdge / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
  }
  return x;
}

// Sets products[i][j] to the product of row a_first + 4 · Down() + i of a and
// row b_first + Across() + 16 · j of b. All threads call it.
__device__ inline void MultiplyRows(const TensorRows& a, int64_t a_first,
                                    const TensorRows& b, int64_t b_first,
                                    AttentionMemory& m,
                                    float (&products)[kPatch][kPatch]) {
  auto* left = reinterpret_cast<float(*)[kDepthStride]>(m.stage);
  auto* right = left + kSide;
  for (int i = 0; i < kPatch; ++i) {
    for (int j = 0; j < kPatch; ++j) products[i][j] = 0;
  }
  for (int64_t from = 0; from < a.width; from += kDepth) {
    __syncthreads();  // all have read what was staged before
    StageRows(a, a_first, from, left);
    StageRows(b, b_first, from, right);
    __syncthreads();
    int64_t depth = a.width - from;
    AddProducts(left, right,
                depth < kDepth ? (static_cast<int>(depth) + 3) / 4 * 4 : kDepth,
                products);
  }
}

// Puts the block's x[i][j] into the tile, in the places of MultiplyRows. All
// threads call it; AddRows waits for them.
__device__ inline void WriteTile(const float (&x)[kPatch][kPatch],
                                 AttentionMemory& m) {
  __syncthreads();  // all have read the tile before
  for (int i = 0; i < kPatch; ++i) {
    for (int j = 0; j < kPatch; ++j) {
      m.tile[kPatch * Down() + i][Across() + kEdge * j] = x[i][j];
    }
  }
}

// Results of a thread: rows 4 · Down() … + 3, and of each part of kSide columns
// columns 4 · Across() … + 3.
template <int kParts>
struct RowSumsOfThread {
  float of[kPatch][kParts][4];

  __device__ void Clear() {
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      ONNX_FP8_UNROLL
      for (int c = 0; c < kParts; ++c) {
        ONNX_FP8_UNROLL
        for (int k = 0; k < 4; ++k) of[i][c][k] = 0;
      }
    }
  }

  __device__ void Scale(int i, float factor) {
    ONNX_FP8_UNROLL
    for (int c = 0; c < kParts; ++c) {
      ONNX_FP8_UNROLL
      for (int k = 0; k < 4; ++k) of[i][c][k] *= factor;
    }
  }

  // Adds the product of the tile's first `count` columns and as many rows of
  // `rows`, from row `first` on, whose elements begin at `column`. All threads
  // call it.
  __device__ void AddRows(AttentionMemory& m, int count, const TensorRows& rows,
                          int64_t first, int64_t column) {
    constexpr int kStaged = kSide / kParts;  // rows at a time
    constexpr int kWidth = kSide * kParts;
    static_assert(kStaged * kWidth <= 2 * kSide * kDepthStride);
    ONNX_FP8_KEEP_LOOP
    for (int from = 0; from < count; from += kStaged) {
      __syncthreads();  // all have read what was staged, and written the tile
      ONNX_FP8_KEEP_LOOP
      for (int i = 0; i < kStaged * kWidth / 4 / kTileThreads; ++i) {
        int vector = i * kTileThreads + static_cast<int>(threadIdx.x);
        int row = vector / (kWidth / 4), at = vector % (kWidth / 4) * 4;
        float x[4];
        ReadRow(rows, first + from + row, column + at, x);
        WriteShared(m.stage + row * kWidth + at, x);
      }
      __syncthreads();
      ONNX_FP8_KEEP_LOOP
      for (int l = 0; l < kStaged && from + l < count; l += 4) {
        AddStaged(m, from + l, l);
      }
    }
  }

  __device__ void Write(const ResultRows& to, int64_t first, int64_t column,
                        AmaxPart& seen) {
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      ONNX_FP8_UNROLL
      for (int c = 0; c < kParts; ++c) {
        WriteRow(to, first + kPatch * Down() + i,
                 column + c * kSide + 4 * Across(), of[i][c], seen);
      }
    }
  }

 private:
  // Four columns of the tile, and the four rows that begin at row `staged`.
  __device__ void AddStaged(const AttentionMemory& m, int tile_column,
                            int staged) {
    constexpr int kWidth = kSide * kParts;
    float p[kPatch][4];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      ReadShared(&m.tile[kPatch * Down() + i][tile_column], p[i]);
    }
    ONNX_FP8_UNROLL
    for (int l = 0; l < 4; ++l) {
      const float* row = m.stage + (staged + l) * kWidth + 4 * Across();
      ONNX_FP8_UNROLL
      for (int c = 0; c < kParts; ++c) {
        float x[4];
        ReadShared(row + c * kSide, x);
        ONNX_FP8_UNROLL
        for (int i = 0; i < kPatch; ++i) {
          ONNX_FP8_UNROLL
          for (int k = 0; k < 4; ++k) {
            of[i][c][k] = fmaf(p[i][l], x[k], of[i][c][k]);
          }
        }
      }
    }
  }
};

}  // namespace onnx_fp8::cuda
