// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of attention. The probabilities are computed again from
// lse. Two small kernels find facts of rows. Then there are three kernels: for
// dq, for dk and dv, and for drelative. A block of threads computes 64 rows of
// dq, or 64 rows of dk and dv, or 64 elements of drelative. It computes all
// tiles of scores on which these results depend, and adds their parts in a
// fixed order. So each result is the sum of one block. Tiles whose rows and
// columns share no segment are left out. A block of dk and dv computes the
// scores of all heads that share them. Traffic: each result is written once; q,
// k, v and dy are read T/64 or S/64 times, mostly from the second-level cache.
// The scores are computed again for each 256 columns of a result.
#include <algorithm>
#include <cmath>

#include "providers/cuda/attention/attention.h"
#include "providers/cuda/attention/operands.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {
namespace {

// ---- along (B,H,T), the product of y and its gradient in each row

constexpr int kAlongThreads = 256;
constexpr int kRowsOfBlock = kAlongThreads / 32;  // a warp has a row

__global__ void __launch_bounds__(kAlongThreads)
    AlongKernel(AttentionOperands z, FloatsIn y, float* along) {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock +
                static_cast<int>(threadIdx.x) / 32;
  if (row >= z.b * z.t * z.heads) return;
  int64_t head = row % z.heads, line = row / z.heads;
  int64_t batch = line / z.t, time = line % z.t;
  int64_t at = PlaceOf(z.y_at, batch, head) + time * z.y_at.row;
  float sum = 0;
  if (z.e % 4 == 0) {
    for (int64_t j = 4 * lane; j < z.e; j += 128) {
      float a[4], b[4];
      Load4(z.dy, at + j, a);
      Load4(y, at + j, b);
      for (int k = 0; k < 4; ++k) sum = fmaf(a[k], b[k], sum);
    }
  } else {
    for (int64_t j = lane; j < z.e; j += 32) {
      sum = fmaf(Load(z.dy, at + j), Load(y, at + j), sum);
    }
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
  }
  if (lane > 0) return;
  along[(batch * z.heads + head) * z.t + time] = sum;
}

// ---- one element of the scores

// (B,H,T) each.
struct OfRows {
  float *along, *share;
};

struct RowFacts {
  float lse, along, share;
};

// `head` counts the heads of all batches.
__device__ RowFacts FactsOf(const AttentionOperands& z, const OfRows& rows,
                            int64_t head, int64_t row) {
  if (row >= z.t) return {0, 0, 0};
  int64_t at = head * z.t + row;
  return {z.lse[at], rows.along[at], rows.share[at]};
}

// Replaces score and dp, the product of dy and value, by what products read of
// the probability and of the score's gradient.
__device__ void ReplaceByGradients(const AttentionOperands& z, bool seen,
                                   const RowFacts& facts, float& score,
                                   float& dp) {
  float p = Power(score - facts.lse) * facts.share;
  float ds = p * (dp - facts.along) * z.scale;
  score = seen ? Rounded(z.rounded, p) : 0.0f;
  dp = seen ? Rounded(z.rounded, ds) : 0.0f;
}

// ---- share (B,H,T), 1 / the sum of e^(scores - lse) of a row

// The rounding of a larger lse would show in the probabilities.
constexpr float kLargeLse = 256;

// A block has 64 rows. If no lse is large, all sums are taken for 1.
__global__ void __launch_bounds__(kTileThreads)
    ShareKernel(AttentionOperands z, int64_t tiles, float* share) {
  __shared__ AttentionMemory m;
  int64_t number = blockIdx.x / tiles, row = blockIdx.x % tiles * kSide;
  AttentionHead h = HeadOf(z, number / z.heads, number % z.heads);
  const float* lse = z.lse + number * z.t;
  bool large = false;
  for (int i = 0; i < kSide && row + i < z.t; ++i) {
    float size = fabsf(lse[row + i]);
    large = large || (size > kLargeLse && size < -kUnseen);
  }
  float total[kPatch] = {};
  int64_t end = z.causal && row + kSide < z.s ? row + kSide : z.s;
  const bool by_segment = z.segments != nullptr;
  for (int64_t column = 0; large && column < end; column += kSide) {
    if (by_segment && !MayMeet<true>(z, h, row, column, m)) continue;
    float s[kPatch][kPatch];
    MultiplyRows(QueryRows(z, h), row, KeyRows(z, h), column, m, s);
    ScoreTile tile = TileOf(z, h, row, column, by_segment);
    FinishScores<false>(z, tile, m, s);
    for (int i = 0; i < kPatch; ++i) {
      for (int j = 0; j < kPatch; ++j) {
        int at = RowOf<false>(i, j);
        if (!tile.Sees(at, ColumnOf<false>(i, j), m)) continue;
        total[i] += Power(s[i][j] - lse[row + at]);
      }
    }
  }
  for (int i = 0; i < kPatch; ++i) {
    float sum = SumOfLine(total[i]);
    int64_t own = row + kPatch * Down() + i;
    if (Across() > 0 || own >= z.t) continue;
    float size = fabsf(lse[own]);
    bool counts = size > kLargeLse && size < -kUnseen;
    share[number * z.t + own] = counts ? 1 / sum : 1.0f;
  }
}

// ---- dq

struct QueryResults {
  FloatsOut dq;
  DeviceAmax* amax;
  int64_t tiles, chunks;
};

// Writes a tile of ds, the gradient of the scores, to shared memory. The rows
// of the tile begin at `row`, its columns at `column`. facts[i] belongs to row
// 4 · Down() + i of the tile.
__device__ void WriteScoreGradients(const AttentionOperands& z,
                                    const AttentionHead& h, int64_t row,
                                    int64_t column,
                                    const RowFacts (&facts)[kPatch],
                                    AttentionMemory& m) {
  float s[kPatch][kPatch], dp[kPatch][kPatch];
  MultiplyRows(QueryRows(z, h), row, KeyRows(z, h), column, m, s);
  ScoreTile tile = TileOf(z, h, row, column, z.segments != nullptr);
  FinishScores<false>(z, tile, m, s);
  MultiplyRows(GradientRows(z, h), row, ValueRows(z, h), column, m, dp);
  ONNX_FP8_UNROLL
  for (int i = 0; i < kPatch; ++i) {
    ONNX_FP8_UNROLL
    for (int j = 0; j < kPatch; ++j) {
      bool seen = tile.Sees(RowOf<false>(i, j), ColumnOf<false>(i, j), m);
      ReplaceByGradients(z, seen, facts[i], s[i][j], dp[i][j]);
    }
  }
  WriteTile(dp, m);
}

template <int kParts>
__global__ void __launch_bounds__(kTileThreads, 1)
    QueryGradientKernel(AttentionOperands z, OfRows rows, QueryResults r) {
  __shared__ AttentionMemory m;
  AttentionBlock block = BlockOf(r.tiles, r.chunks);
  AttentionHead h = HeadOf(z, block.head / z.heads, block.head % z.heads);
  // The longest rows begin first.
  int64_t row = (r.tiles - 1 - block.tile) * kSide;
  int64_t end = z.causal && row + kSide < z.s ? row + kSide : z.s;
  int64_t first = block.chunk * kParts * kSide;  // column of dq
  RowFacts facts[kPatch];
  for (int i = 0; i < kPatch; ++i) {
    facts[i] = FactsOf(z, rows, block.head, row + kPatch * Down() + i);
  }
  RowSumsOfThread<kParts> sums;
  sums.Clear();
  for (int64_t column = 0; column < end; column += kSide) {
    if (z.segments && !MayMeet<true>(z, h, row, column, m)) continue;
    WriteScoreGradients(z, h, row, column, facts, m);
    int64_t count = end - column;
    sums.AddRows(m, count < kSide ? static_cast<int>(count) : kSide,
                 KeyRows(z, h), column, first);
  }
  AmaxPart seen;
  TensorRows q = QueryRows(z, h);
  sums.Write({r.dq, q.at, q.stride, q.count, q.width}, row, first, seen);
  seen.AddTo(r.amax);
}

// ---- dk and dv

struct KeyResults {
  FloatsOut dk, dv;
  DeviceAmax *dk_amax, *dv_amax;
  int64_t tiles, chunks;
};

// Computes p and ds of the transposed tile: element [i][j] is of key
// `key` + 4 · Down() + i and of row `row` + Across() + 16 · j.
template <bool kBySegment>
__device__ void KeyGradients(const AttentionOperands& z, const AttentionHead& h,
                             const OfRows& rows, int64_t key, int64_t row,
                             AttentionMemory& m, float (&p)[kPatch][kPatch],
                             float (&ds)[kPatch][kPatch]) {
  MultiplyRows(KeyRows(z, h), key, QueryRows(z, h), row, m, p);
  ScoreTile tile = TileOf(z, h, row, key, kBySegment);
  FinishScores<true>(z, tile, m, p);
  MultiplyRows(ValueRows(z, h), key, GradientRows(z, h), row, m, ds);
  ONNX_FP8_UNROLL
  for (int j = 0; j < kPatch; ++j) {
    RowFacts facts =
        FactsOf(z, rows, h.batch * z.heads + h.head, row + RowOf<true>(0, j));
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      bool seen = tile.Sees(RowOf<true>(i, j), ColumnOf<true>(i, j), m);
      ReplaceByGradients(z, seen, facts, p[i][j], ds[i][j]);
    }
  }
}

template <int kParts, bool kBySegment>
__global__ void __launch_bounds__(kTileThreads, 1)
    KeyGradientKernel(AttentionOperands z, OfRows rows, KeyResults r) {
  __shared__ AttentionMemory m;
  AttentionBlock block = BlockOf(r.tiles, r.chunks);  // its head is a group
  int64_t batch = block.head / z.groups, repeats = z.heads / z.groups;
  int64_t first_head = block.head % z.groups * repeats;
  int64_t key = block.tile * kSide;
  int64_t first = block.chunk * kParts * kSide;  // column of dk and of dv
  bool dk = r.dk.data && first < z.d, dv = r.dv.data && first < z.e;
  RowSumsOfThread<kParts> dk_sums, dv_sums;
  dk_sums.Clear();
  dv_sums.Clear();
  for (int64_t i = 0; i < repeats; ++i) {
    AttentionHead h = HeadOf(z, batch, first_head + i);
    // Rows before the first key do not see the tile.
    for (int64_t row = z.causal ? key : 0; row < z.t; row += kSide) {
      if (!MayMeet<kBySegment>(z, h, row, key, m)) continue;
      float p[kPatch][kPatch], ds[kPatch][kPatch];
      KeyGradients<kBySegment>(z, h, rows, key, row, m, p, ds);
      int64_t left = z.t - row;
      int count = left < kSide ? static_cast<int>(left) : kSide;
      if (dv) {
        WriteTile(p, m);
        dv_sums.AddRows(m, count, GradientRows(z, h), row, first);
      }
      if (dk) {
        WriteTile(ds, m);
        dk_sums.AddRows(m, count, QueryRows(z, h), row, first);
      }
    }
  }
  AttentionHead h = HeadOf(z, batch, first_head);
  AmaxPart dk_seen, dv_seen;
  if (dk) {
    TensorRows k = KeyRows(z, h);
    dk_sums.Write({r.dk, k.at, k.stride, k.count, k.width}, key, first,
                  dk_seen);
  }
  if (dv) {
    TensorRows v = ValueRows(z, h);
    dv_sums.Write({r.dv, v.at, v.stride, v.count, v.width}, key, first,
                  dv_seen);
  }
  dk_seen.AddTo(r.dk_amax);
  dv_seen.AddTo(r.dv_amax);
}

// ---- drelative

// A block has kSide elements of a head's row, that is diagonals of the scores.
// In 64 rows they lie in two tiles of columns. Four threads sum each diagonal.
__global__ void __launch_bounds__(kTileThreads, 1)
    RelativeGradientKernel(AttentionOperands z, OfRows rows, int64_t tiles,
                           float* drelative) {
  __shared__ AttentionMemory m;
  int64_t head = blockIdx.x / tiles, first = blockIdx.x % tiles * kSide;
  int64_t n = z.t + z.s - 1;
  int64_t distance = first - (z.t - 1);  // column - row, of diagonal 0
  int diagonal = static_cast<int>(threadIdx.x) % kSide;
  int part = static_cast<int>(threadIdx.x) / kSide;
  constexpr int kParts = kTileThreads / kSide;
  constexpr int kRows = kSide / kParts;
  float sum = 0;
  for (int64_t batch = 0; batch < z.b; ++batch) {
    AttentionHead h = HeadOf(z, batch, head);
    for (int64_t row = 0; row < z.t; row += kSide) {
      RowFacts facts[kPatch];
      for (int i = 0; i < kPatch; ++i) {
        facts[i] =
            FactsOf(z, rows, batch * z.heads + head, row + kPatch * Down() + i);
      }
      for (int right = 0; right < 2; ++right) {
        int64_t column = row + distance + right * kSide;
        // Hidden are columns that don't exist or lie behind all rows.
        if (column >= z.s || column + kSide <= 0) continue;
        if (z.causal && column >= row + kSide) continue;
        WriteScoreGradients(z, h, row, column, facts, m);
        __syncthreads();
        for (int i = part * kRows; i < (part + 1) * kRows; ++i) {
          int at = i + diagonal - right * kSide;
          if (at >= 0 && at < kSide) sum += m.tile[i][at];
        }
      }
    }
  }
  __syncthreads();  // all have read the tile
  m.tile[part][diagonal] = sum;
  __syncthreads();
  if (part > 0 || first + diagonal >= n) return;
  for (int i = 1; i < kParts; ++i) sum += m.tile[i][diagonal];
  // ds is multiplied by the scale; `relative` enters the scores without it.
  drelative[head * n + first + diagonal] = sum / z.scale;
}

// ---- launches

void StartQueries(KernelContext& ctx, const AttentionOperands& z,
                  const OfRows& rows, FloatsOut dq) {
  const int parts = PartsOf(z.d);
  QueryResults r = {dq, ClearedAmax(ctx, 0), DivideUp(z.t, kSide),
                    ChunksOf(z.d, parts)};
  if (!dq.data) return;
  int64_t blocks = r.tiles * r.chunks * z.b * z.heads;
  if (blocks == 0) return;
  Launch(parts == 1   ? QueryGradientKernel<1>
         : parts == 2 ? QueryGradientKernel<2>
                      : QueryGradientKernel<4>,
         static_cast<unsigned>(blocks), kTileThreads, 0, QueueOf(ctx).stream(),
         z, rows, r);
}

void StartKeys(KernelContext& ctx, const AttentionOperands& z,
               const AttentionInputs& in, const OfRows& rows, FloatsOut dk,
               FloatsOut dv) {
  const int64_t width = std::max(z.d, z.e);
  // Four parts leave no registers for segments.
  const int parts = std::min(PartsOf(width), z.segments ? 2 : 4);
  KeyResults r = {dk,
                  dv,
                  ClearedAmax(ctx, in.gradient(1)),
                  ClearedAmax(ctx, in.gradient(2)),
                  DivideUp(z.s, kSide),
                  ChunksOf(width, parts)};
  if (!dk.data && !dv.data) return;
  int64_t blocks = r.tiles * r.chunks * z.b * z.groups;
  if (blocks == 0) return;
  const auto start = [&](auto* kernel) {
    Launch(kernel, static_cast<unsigned>(blocks), kTileThreads, 0,
           QueueOf(ctx).stream(), z, rows, r);
  };
  if (z.segments) {
    start(parts == 1 ? KeyGradientKernel<1, true> : KeyGradientKernel<2, true>);
  } else {
    start(parts == 1   ? KeyGradientKernel<1, false>
          : parts == 2 ? KeyGradientKernel<2, false>
                       : KeyGradientKernel<4, false>);
  }
}

void StartRelative(KernelContext& ctx, const AttentionOperands& z,
                   const OfRows& rows) {
  int64_t tiles = DivideUp(z.t + z.s - 1, kSide);
  Tensor& d = ctx.Out(3, DType::kFloat, {z.heads, z.t + z.s - 1});
  Launch(RelativeGradientKernel, static_cast<unsigned>(tiles * z.heads),
         kTileThreads, 0, QueueOf(ctx).stream(), z, rows, tiles,
         static_cast<float*>(d.raw()));
}

void SetZeros(KernelContext& ctx, size_t results) {
  for (size_t i = 0; i < results; ++i) {
    FloatsOut out = FloatsTo(ctx, i, ctx.In(i + 1).shape());
    if (!out.data || ctx.Out(i).bytes() == 0) continue;
    ONNX_FP8_CUDA(cudaMemsetAsync(out.data, 0, ctx.Out(i).bytes(),
                                  QueueOf(ctx).stream()));
  }
}

}  // namespace

size_t BackwardWorkspace(const AttentionSizes& z) {
  return 2 * static_cast<size_t>(z.b * z.t * z.heads) * sizeof(float);
}

void AttentionBackward(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in) {
  AttentionOperands a = OperandsOf(ctx, z, in);
  a.dy = FloatsOf(ctx, 0);
  FloatsIn y = FloatsOf(ctx, in.y());
  a.lse = static_cast<const float*>(Operand(ctx, in.y() + 1).raw());
  if (z.s == 0 || z.t == 0) return SetZeros(ctx, in.gradients());
  FloatsOut d[3];
  for (size_t i = 0; i < in.count(); ++i) {
    d[i] = FloatsTo(ctx, i, ctx.In(i + 1).shape());
  }
  int64_t rows = z.b * z.t * z.heads;
  auto* along = static_cast<float*>(ctx.Workspace(BackwardWorkspace(z)));
  OfRows of_rows = {along, along + rows};
  if (rows > 0) {
    Launch(AlongKernel, static_cast<unsigned>(DivideUp(rows, kRowsOfBlock)),
           kAlongThreads, 0, QueueOf(ctx).stream(), a, y, along);
    int64_t tiles = DivideUp(z.t, kSide);
    Launch(ShareKernel, static_cast<unsigned>(tiles * z.b * z.heads),
           kTileThreads, 0, QueueOf(ctx).stream(), a, tiles, of_rows.share);
  }
  StartQueries(ctx, a, of_rows, d[in.gradient(0)]);
  StartKeys(ctx, a, in, of_rows, d[in.gradient(1)], d[in.gradient(2)]);
  if (in.has_relative && ctx.HasOut(3)) StartRelative(ctx, a, of_rows);
}

}  // namespace onnx_fp8::cuda
