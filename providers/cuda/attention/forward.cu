// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of attention. A block has 64 rows of one head. It meets the
// columns 64 at a time, and scales its results whenever the largest score of
// their row grows. Columns beyond a causal mask, and tiles whose rows and
// columns share no segment, are not read. Traffic: y is written once; each
// block reads its rows of q, and k and v of its head, so that k and v are read
// T/64 times (half of that if causal), mostly from the second-level cache. The
// scores are computed again for each 256 columns of y.
#include <cmath>

#include "providers/cuda/attention/attention.h"
#include "providers/cuda/attention/operands.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {
namespace {

// The maximum over the 16 threads that share a row. All threads of the warp
// call it.
__device__ float LargestInLine(float x) {
  for (int lanes = kEdge / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
  }
  return x;
}

// The softmax of a thread's rows, whose columns come tile by tile.
struct RunningSoftmax {
  float largest[kPatch];  // of the scores so far, the same in a whole line
  float total[kPatch];    // of this thread's powers so far

  __device__ void Clear() {
    for (int i = 0; i < kPatch; ++i) {
      largest[i] = kUnseen;
      total[i] = 0;
    }
  }

  // Replaces the scores of row i by powers of e. Returns the factor of what was
  // computed with the last largest score.
  __device__ float Add(int i, float (&scores)[kPatch]) {
    float top = largest[i];
    for (int j = 0; j < kPatch; ++j) top = fmaxf(top, scores[j]);
    top = LargestInLine(top);
    // As long as a row sees only -infinity, its powers are 0.
    float shift = top == kUnseen ? 0.0f : top;
    float factor = Power(largest[i] - shift);
    total[i] *= factor;
    for (int j = 0; j < kPatch; ++j) {
      scores[j] = Power(scores[j] - shift);
      total[i] += scores[j];
    }
    largest[i] = top;
    return factor;
  }
};

struct ForwardResults {
  FloatsOut y;
  DeviceAmax* amax;
  float* lse;  // null: nobody reads it
  int64_t tiles, chunks;
};

// The log of the sum of e^scores. NaN for a row that sees only -infinity, as in
// the op's body.
__device__ float LogOfSum(float largest, float total) {
  if (total == 0) return __uint_as_float(0x7FC00000u);
  return largest + logf(total);
}

// Blocks of a multiprocessor that have room for their registers.
template <int kParts, bool kBySegment>
inline constexpr int kForwardBlocks = kBySegment || kParts == 4 ? 1 : 2;

template <int kParts, bool kBySegment>
__global__ void __launch_bounds__(kTileThreads,
                                  kForwardBlocks<kParts, kBySegment>)
    ForwardKernel(AttentionOperands z, ForwardResults r) {
  __shared__ AttentionMemory m;
  AttentionBlock block = BlockOf(r.tiles, r.chunks);
  AttentionHead h = HeadOf(z, block.head / z.heads, block.head % z.heads);
  // The longest rows begin first.
  int64_t row = (r.tiles - 1 - block.tile) * kSide;
  int64_t own = row + kPatch * Down();
  int64_t end = z.causal && row + kSide < z.s ? row + kSide : z.s;
  int64_t first = block.chunk * kParts * kSide;  // column of y
  RowSumsOfThread<kParts> sums;
  RunningSoftmax softmax;
  sums.Clear();
  softmax.Clear();
  for (int64_t column = 0; column < end; column += kSide) {
    if (!MayMeet<kBySegment>(z, h, row, column, m)) continue;
    float p[kPatch][kPatch];
    MultiplyRows(QueryRows(z, h), row, KeyRows(z, h), column, m, p);
    ScoreTile tile = TileOf(z, h, row, column, kBySegment);
    FinishScores<false>(z, tile, m, p);
    ONNX_FP8_UNROLL
    for (int i = 0; i < kPatch; ++i) {
      for (int j = 0; j < kPatch; ++j) {
        if (!tile.Sees(RowOf<false>(i, j), ColumnOf<false>(i, j), m)) {
          p[i][j] = kUnseen;
        }
      }
      sums.Scale(i, softmax.Add(i, p[i]));
      for (int j = 0; j < kPatch; ++j) p[i][j] = Rounded(z.rounded, p[i][j]);
    }
    WriteTile(p, m);
    int64_t count = end - column;
    sums.AddRows(m, count < kSide ? static_cast<int>(count) : kSide,
                 ValueRows(z, h), column, first);
  }
  for (int i = 0; i < kPatch; ++i) {
    float total = SumOfLine(softmax.total[i]);
    // No column: an empty sum.
    sums.Scale(i, z.s == 0 ? 0.0f : 1 / total);
    if (!r.lse || block.chunk > 0 || Across() > 0 || own + i >= z.t) continue;
    r.lse[block.head * z.t + own + i] =
        z.s == 0 ? kUnseen : LogOfSum(softmax.largest[i], total);
  }
  AmaxPart seen;
  if (r.y.data) {
    ResultRows y = {r.y, PlaceOf(z.y_at, h.batch, h.head), z.y_at.row, z.t,
                    z.e};
    sums.Write(y, row, first, seen);
  }
  seen.AddTo(r.amax);
}

}  // namespace

void AttentionForward(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in) {
  AttentionOperands a = OperandsOf(ctx, z, in);
  const int parts = PartsOf(z.e);
  FloatsOut y = FloatsTo(ctx, 0, z.y_shape);
  ForwardResults r = {y, ClearedAmax(ctx, 0), nullptr, DivideUp(z.t, kSide),
                      ChunksOf(z.e, parts)};
  if (ctx.HasOut(1)) {
    Tensor& lse = ctx.Out(1, DType::kFloat, {z.b, z.heads, z.t});
    r.lse = static_cast<float*>(lse.raw());
  }
  int64_t blocks = r.tiles * r.chunks * z.b * z.heads;
  if (blocks == 0) return;
  const auto start = [&](auto* kernel) {
    Launch(kernel, static_cast<unsigned>(blocks), kTileThreads, 0,
           QueueOf(ctx).stream(), a, r);
  };
  if (a.segments) {
    start(parts == 1   ? ForwardKernel<1, true>
          : parts == 2 ? ForwardKernel<2, true>
                       : ForwardKernel<4, true>);
  } else {
    start(parts == 1   ? ForwardKernel<1, false>
          : parts == 2 ? ForwardKernel<2, false>
                       : ForwardKernel<4, false>);
  }
}

}  // namespace onnx_fp8::cuda
