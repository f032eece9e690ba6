// SPDX-License-Identifier: Apache-2.0
//
// Gradients of mean losses over classes, alone or with the loss. A label that
// is no class makes the loss NaN; its sample has no gradient, and does not
// count. Traffic: scores are read once, the gradient is written once, which may
// be in the place of the scores. With the loss, a block keeps up to 112 KiB of
// a row in shared memory between the sum over the row and the gradient;
// elements past that are read twice, and rows that do not count are not read.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "providers/cuda/core/exp_sum.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/core/shared_memory.h"
#include "providers/cuda/ops/class_labels.h"
#include "providers/cuda/ops/loss_sum.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

using Count = unsigned long long;  // what atomicAdd takes

size_t CountWorkspace(KernelContext&) { return sizeof(Count); }

// Adds the number of samples that count to *count.
__global__ void __launch_bounds__(kThreads)
    CountKernel(Labels labels, int64_t n, Count* count) {
  unsigned own = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < n; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    own += labels.At(i) >= 0;
  }
  own = __reduce_add_sync(0xFFFFFFFFu, own);
  if (threadIdx.x % 32 == 0 && own > 0) atomicAdd(count, Count{own});
}

struct ScoresGrad {
  FloatsIn dloss, x;
  FloatsIn lse;  // null: x are logarithms of probabilities
  Labels labels;
  const Count* count;
  FloatsOut dx;
  DeviceAmax* amax;
  int64_t n;  // elements
};

// The factor that all slopes have.
__device__ float ShareOf(const ScoresGrad& p) {
  Count count = *p.count > 0 ? *p.count : 1;
  return Load(p.dloss, 0) / static_cast<float>(count);
}

// What the elements of a row have in common.
struct RowTerms {
  int64_t label;
  float shift;

  // (e^(x - shift) - hot) share; 0 for samples that do not count.
  __device__ float Slope(float x, int64_t column, float share) const {
    if (label < 0) return 0;
    float y = ExpSum::Exp(x - shift) * share;
    return column == label ? y - share : y;
  }

  // The same for the numbers of four classes, from class `column` on.
  __device__ void Slopes(int64_t column, float share,
                         float (&x)[kPerThread]) const {
    bool counts = label >= 0;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kPerThread; ++k) {
      x[k] = counts ? ExpSum::Exp(x[k] - shift) * share : 0.0f;
    }
    int64_t hot = label - column;
    if (!counts || hot < 0 || hot >= kPerThread) return;
    ONNX_FP8_UNROLL
    for (int k = 0; k < kPerThread; ++k) {
      if (k == hot) x[k] -= share;
    }
  }
};

__device__ RowTerms TermsOf(const ScoresGrad& p, int64_t row) {
  return {p.labels.At(row), p.lse.data ? Load(p.lse, row) : 0.0f};
}

__global__ void __launch_bounds__(kThreads) ScoresGradKernel(ScoresGrad p) {
  int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads;
  const RowPart part = AlignedRow(0, p.n).From(first);
  int thread = threadIdx.x;
  int64_t at = (first + thread) * kPerThread, classes = p.labels.classes;
  AmaxPart seen;
  if (at < p.n) {
    const float share = ShareOf(p);
    int64_t row = Quotient(at, classes), column = at - row * classes;
    RowTerms terms = TermsOf(p, row);
    float x[kPerThread];
    LoadVector(p.x, part, thread, 0, x);
    for (int k = 0; k < kPerThread; ++k, ++column) {
      if (column == classes && at + k < p.n) {
        terms = TermsOf(p, ++row);
        column = 0;
      }
      x[k] = terms.Slope(x[k], column, share);
    }
    StoreVector(p.dx, part, thread, x, seen);
  }
  seen.AddOfBlock(p.amax);
}

// The same for rows of whole vectors: a block has a part of one row. kNarrow:
// the scores and dx are kept as bfloat16.
constexpr int kPartVectors = 4;
constexpr int64_t kPartOfRow = int64_t{kThreads} * kPartVectors * kPerThread;

template <bool kNarrow>
__global__ void __launch_bounds__(kThreads) WholeRowsGradKernel(ScoresGrad p) {
  const FloatsIn scores = Known<kNarrow>(p.x);
  const FloatsOut dx = Known<kNarrow>(p.dx);
  int64_t row = blockIdx.x, classes = p.labels.classes;
  int64_t first = blockIdx.y * kPartOfRow + int64_t{threadIdx.x} * kPerThread;
  constexpr int64_t kStep = int64_t{kThreads} * kPerThread;
  Vector raw[kPartVectors];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kPartVectors; ++v) {
    int64_t column = first + v * kStep;
    if (column < classes) raw[v] = LoadVector4(scores, row * classes + column);
  }
  const float share = ShareOf(p);
  const RowTerms terms = TermsOf(p, row);
  AmaxPart seen;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kPartVectors; ++v) {
    int64_t column = first + v * kStep;
    if (column >= classes) continue;
    float x[kPerThread];
    ToFloats(scores.storage, raw[v], x);
    terms.Slopes(column, share, x);
    Store4(dx, row * classes + column, x);
    if (p.amax) seen.Add4(x);
  }
  seen.AddOfBlock(p.amax);
}

// ---- with the loss

struct ScoresWithGrad {
  ScoresGrad grad;
  Losses losses;
  int64_t rows;
  int held;  // vectors of a row in shared memory
};

// Bytes of a vector in shared memory.
__host__ __device__ constexpr int HeldBytes(Storage storage) {
  return storage == Storage::kFloat ? 16 : 8;
}

// Vectors that a thread reads at once.
template <bool kNarrow>
constexpr int kReadAtOnce = kNarrow ? 4 : 2;

// What shared memory holds of a row, as the row is kept.
struct HeldRow {
  void* memory;
  Storage storage;

  __device__ void Set(int64_t i, const Vector& raw) const {
    const auto& w = raw.words;
    if (storage == Storage::kFloat) {
      static_cast<uint4*>(memory)[i] = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
      static_cast<uint2*>(memory)[i] = make_uint2(w[0], w[1]);
    }
  }
  __device__ Vector Get(int64_t i) const {
    if (storage == Storage::kFloat) {
      uint4 x = static_cast<const uint4*>(memory)[i];
      return {x.x, x.y, x.z, x.w};
    }
    uint2 x = static_cast<const uint2*>(memory)[i];
    return {x.x, x.y, 0, 0};
  }
};

// The gradient of a row, by the threads that have read it: each has the vectors
// that it had in ExpSumOfRow, the last ones first. load(i): vector i.
template <bool kNarrow, int kWarps, typename Load>
__device__ void WriteRow(const ScoresGrad& p, int thread, const Row& row,
                         const RowTerms& terms, float share, const Load& load,
                         AmaxPart& seen) {
  constexpr int kStep = RowThreads<kWarps>::kThreadsOfRow;
  constexpr int kVectors = kReadAtOnce<kNarrow>;
  const FloatsIn x = Known<kNarrow>(p.x);
  const FloatsOut dx = Known<kNarrow>(p.dx);
  const int64_t begin = (row.first + kPerThread - 1) / kPerThread;
  const int64_t end = row.end / kPerThread;
  auto column_of = [&](int64_t i) { return i * kPerThread - row.first; };
  auto write_part = [&](int64_t i) {
    float four[kPerThread];
    LoadVector(x, row.From(i), 0, 0.0f, four);
    terms.Slopes(column_of(i), share, four);
    StoreVector(dx, row.From(i), 0, four, seen);
  };
  if (thread == 0 && begin > 0) write_part(0);
  if (thread == 1 && end >= begin && end * kPerThread < row.end) {
    write_part(end);
  }
  for (int64_t part = DivideUp(end - begin, kStep * kVectors) - 1; part >= 0;
       --part) {
    const int64_t first = begin + part * kStep * kVectors + thread;
    Vector raw[kVectors];
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int64_t i = first + v * kStep;
      if (i < end) raw[v] = load(i);
    }
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int64_t i = first + v * kStep;
      if (i >= end) continue;
      float four[kPerThread];
      ToFloats(x.storage, raw[v], four);
      terms.Slopes(column_of(i), share, four);
      Store4(dx, row.origin + i * kPerThread, four);
      if (p.amax) seen.Add4(four);
    }
  }
}

// kNarrow: the scores and their gradient are kept as bfloat16.
template <bool kNarrow, int kWarps>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock,
                                  1024 / RowThreads<kWarps>::kBlock)
    ScoresWithGradKernel(ScoresWithGrad p) {
  using Threads = RowThreads<kWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  const FloatsIn x = Known<kNarrow>(p.grad.x);
  const HeldRow held = {
      DynamicShared<char>() + threads.line() * p.held * HeldBytes(x.storage),
      x.storage};
  const int64_t classes = p.losses.labels.classes;
  const float share = ShareOf(p.grad);
  // Thread 0 of a row adds here, which needs no registers.
  __shared__ LossSum sums[Threads::kRows];
  LossSum& sum = sums[threads.line()];
  if (threads.thread() == 0) sum = {};
  AmaxPart seen;
  // A thread holds the same vectors of all its rows: they begin at the same
  // place of a vector. So no thread waits before it holds the next row's.
  static_assert(kMostBlocks % kPerThread == 0);
  for (int64_t r = threads.first(); r < p.rows; r += threads.step()) {
    const Row row = AlignedRow(r, classes);
    const int64_t label = p.losses.labels.At(r);
    auto keep = [&](int64_t i, const Vector& raw) {
      if (i < p.held) held.Set(i, raw);
    };
    auto load = [&](int64_t i) {
      if (label < 0) return Vector();
      if (i < p.held) return held.Get(i);
      return LoadVector4(x, row.origin + i * kPerThread);
    };
    float lse = 0;
    if (label < 0) {
      if (threads.thread() == 0) p.losses.Add(r, 0, sum);
    } else {  // the same for all threads of the row
      // Another thread may write there when the sum is known.
      float score = 0;
      if (threads.thread() == 0) score = Load(x, r * classes + label);
      const LogSum log_sum(
          ExpSumOfRow<kNarrow, kReadAtOnce<kNarrow>>(threads, x, row, keep));
      if constexpr (kWarps == 1) __syncwarp();
      lse = log_sum.Lse();
      if (threads.thread() == 0) {
        p.losses.Add(r, log_sum.LogProbability(score), sum);
      }
    }
    if (!p.grad.dx.data) continue;
    WriteRow<kNarrow, kWarps>(p.grad, threads.thread(), row, {label, lse},
                              share, load, seen);
  }
  if (threads.thread() == 0) p.losses.parts[threads.first()] = sum;
  seen.AddOfBlock(p.grad.amax);
}

// ---- launches

// Operand 0 is dloss, operand 1 the scores or logarithms of probabilities;
// result `index` is their gradient.
ScoresGrad GradOf(KernelContext& ctx, const Samples& s, FloatsIn lse,
                  size_t index, const Count* count) {
  const Tensor& dloss = Operand(ctx, 0);
  Check(dloss.size() == 1, "[", ctx.Where(),
        "] expected one number as operand 0, got shape ",
        ToString(dloss.shape()));
  CheckOnePerRow(ctx, s, ctx.In(1));
  return {.dloss = FloatsOf(ctx, 0),
          .x = FloatsOf(ctx, 1),
          .lse = lse,
          .labels = s.labels,
          .count = count,
          .dx = FloatsTo(ctx, index, ctx.In(1).shape()),
          .amax = ClearedAmax(ctx, index),
          .n = s.n * s.classes};
}

void StartCount(const KernelContext& ctx, const Samples& s, Count* count) {
  cudaStream_t stream = QueueOf(ctx).stream();
  ONNX_FP8_CUDA(cudaMemsetAsync(count, 0, sizeof(Count), stream));
  int64_t blocks = std::min<int64_t>(DivideUp(s.n, kThreads), kMostBlocks);
  if (blocks == 0) return;
  Launch(CountKernel, static_cast<unsigned>(blocks), kThreads, 0, stream,
         s.labels, s.n, count);
}

void StartScoresGrad(KernelContext& ctx, const Samples& s, FloatsIn lse) {
  auto* count = static_cast<Count*>(ctx.Workspace(CountWorkspace(ctx)));
  const ScoresGrad p = GradOf(ctx, s, lse, 0, count);
  if (p.n == 0 || !p.dx.data) return;
  StartCount(ctx, s, count);
  cudaStream_t stream = QueueOf(ctx).stream();
  if (s.classes % kPerThread == 0 && s.inner == 1) {
    dim3 grid(static_cast<unsigned>(s.n),
              static_cast<unsigned>(DivideUp(s.classes, kPartOfRow)));
    bool narrow = AreBFloat16({p.x, AsOperand(p.dx)});
    return Launch(
        narrow ? WholeRowsGradKernel<true> : WholeRowsGradKernel<false>, grid,
        kThreads, 0, stream, p);
  }
  Launch(ScoresGradKernel,
         static_cast<unsigned>(DivideUp(p.n, kThreads * kPerThread)), kThreads,
         0, stream, p);
}

// (dloss, scores, lse, labels) -> dscores
void CrossEntropyGrad(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 1);
  Samples s =
      SamplesOf(ctx, x, Operand(ctx, 3), true, ctx.Int("ignore_index", -100));
  CheckOperand(ctx, 2, DType::kFloat, {s.n});
  StartScoresGrad(ctx, s, FloatsOf(ctx, 2));
}

// (dloss, log_prob, labels) -> dscores
void SoftmaxCrossEntropyGrad(KernelContext& ctx) {
  const Tensor& log_prob = Operand(ctx, 1);
  Samples s = SamplesOf(ctx, log_prob, Operand(ctx, 2), true,
                        ctx.Int("ignore_index", -100));
  StartScoresGrad(ctx, s, {});
}

constexpr int kWarpsOfHeld = 16;
// Two blocks of an SM of 228 KiB can hold so much each.
constexpr int kMostHeld = 112 << 10;
constexpr int kStaticBytes = 1 << 10;  // at most

int64_t PartsWithGrad(const KernelContext& ctx) {
  const Shape& shape = ScoresShape(ctx, Operand(ctx, 1));
  return AreShort(shape[1]) ? PartsOfRows<1>(shape[0])
                            : PartsOfRows<kWarpsOfHeld>(shape[0]);
}

size_t WithGradWorkspace(KernelContext& ctx) {
  return BytesOf(PartsWithGrad(ctx)) + sizeof(Count);
}

template <bool kNarrow, int kWarps>
void StartWithGrad(const KernelContext& ctx, ScoresWithGrad p) {
  constexpr int kRows = RowThreads<kWarps>::kRows;
  const int vector = HeldBytes(p.grad.x.storage) * kRows;
  const int most = std::min(MostShared() - kStaticBytes, kMostHeld);
  // A row has two incomplete vectors at most.
  p.held = static_cast<int>(std::min<int64_t>(
      most / vector, p.losses.labels.classes / kPerThread + 2));
  auto* kernel = ScoresWithGradKernel<kNarrow, kWarps>;
  GrantShared(kernel, most);
  LaunchRows<kWarps>(ctx, kernel, p.rows, p,
                     static_cast<size_t>(p.held * vector));
}

// (dloss, scores, labels) -> loss, dscores
void CrossEntropyWithGrad(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 1);
  Samples s =
      SamplesOf(ctx, x, Operand(ctx, 2), true, ctx.Int("ignore_index", -100));
  const int64_t count = PartsWithGrad(ctx);
  auto* parts = static_cast<LossSum*>(ctx.Workspace(WithGradWorkspace(ctx)));
  auto* counted = reinterpret_cast<Count*>(parts + count);
  ScoresWithGrad p = {.grad = GradOf(ctx, s, {}, 1, counted),
                      .losses = {s.labels, nullptr, {}, parts},
                      .rows = s.n,
                      .held = 0};
  StartCount(ctx, s, counted);
  const bool narrow = AreBFloat16({p.grad.x, AsOperand(p.grad.dx)});
  if (AreShort(s.classes)) {
    narrow ? StartWithGrad<true, 1>(ctx, p) : StartWithGrad<false, 1>(ctx, p);
  } else {
    narrow ? StartWithGrad<true, kWarpsOfHeld>(ctx, p)
           : StartWithGrad<false, kWarpsOfHeld>(ctx, p);
  }
  FinishLoss(ctx, parts, count, true, FloatsTo(ctx, 0, {}));
}

}  // namespace

void RegisterLossGrad(KernelRegistry& r) {
  r.Add("CrossEntropyGrad", CrossEntropyGrad,
        {.in_place = {{1, 0}},
         .measures = {0},
         .narrow_in = {1},
         .narrow_out = {0},
         .workspace = CountWorkspace},
        kDomain);
  r.Add("CrossEntropyWithGrad", CrossEntropyWithGrad,
        {.in_place = {{1, 1}},
         .measures = {1},
         .narrow_in = {1},
         .narrow_out = {1},
         .workspace = WithGradWorkspace},
        kDomain);
  r.Add("SoftmaxCrossEntropyGrad", SoftmaxCrossEntropyGrad,
        {.in_place = {{1, 0}}, .workspace = CountWorkspace}, kDomain);
}

}  // namespace onnx_fp8::cuda
