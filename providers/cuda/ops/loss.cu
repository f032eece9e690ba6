// SPDX-License-Identifier: Apache-2.0
//
// Losses over classes. A label that is no class makes the loss NaN. Traffic:
// scores are read once, and once more for log_prob; log_prob is written once.
#include <algorithm>
#include <utility>

#include "providers/cuda/core/exp_sum.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/class_labels.h"
#include "providers/cuda/ops/loss_sum.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kFinishThreads = 1024;

// One block, which adds up all parts.
__global__ void __launch_bounds__(kFinishThreads)
    FinishLossKernel(const LossSum* parts, int64_t count, bool mean,
                     FloatsOut out) {
  __shared__ double losses[32], weights[32];
  LossSum sum;
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) {
    sum.loss += parts[i].loss;
    sum.weight += parts[i].weight;
  }
  sum = {SumOfWarp(sum.loss), SumOfWarp(sum.weight)};
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    losses[warp] = sum.loss;
    weights[warp] = sum.weight;
  }
  __syncthreads();
  if (warp > 0) return;
  sum = {SumOfWarp(losses[lane]), SumOfWarp(weights[lane])};
  if (lane > 0) return;
  // 0/0 if no sample counts, as in PyTorch.
  double loss = mean ? sum.loss / sum.weight : sum.loss;
  Store(out, 0, static_cast<float>(loss));
}

enum class By { kNone, kSum, kMean };

// The loss as operand 2 and the reduction say. `finish` is called after the
// kernel that fills `parts` parts.
struct LossResult {
  LossResult(KernelContext& ctx, const Samples& s, int64_t parts)
      : ctx(ctx), count(parts) {
    losses = {s.labels, nullptr, {}, nullptr};
    if (ctx.HasIn(2)) {
      const Tensor& w = ctx.In(2);
      Check(w.dtype() == DType::kFloat && w.shape() == Shape{s.classes}, "[",
            ctx.Where(), "] expected one weight for each of ", s.classes,
            " classes, got ", Name(w.dtype()), " ", ToString(w.shape()));
      losses.weights = static_cast<const float*>(w.raw());
    }
    by = ChoiceIn<By>(ctx, "reduction", "mean", {"none", "sum", "mean"});
    out = FloatsTo(ctx, 0, by == By::kNone ? s.shape : Shape{});
    if (by == By::kNone) losses.by_sample = out;
    losses.parts = static_cast<LossSum*>(ctx.Workspace(BytesOf(parts)));
  }

  void Finish() const {
    if (by == By::kNone) return;
    FinishLoss(ctx, losses.parts, count, by == By::kMean, out);
  }

  const KernelContext& ctx;
  int64_t count;
  Losses losses;
  By by;
  FloatsOut out;
};

// ---- from scores

struct Scores {
  FloatsIn x;
  FloatsOut lse;       // log Σ e^x of each row
  FloatsOut log_prob;  // log_softmax of x
  Losses losses;
  int64_t rows, classes;
};

// log_softmax of a row, which is read again.
template <int kWarps>
__device__ void WriteLogProb(const Scores& p, RowThreads<kWarps>& threads,
                             const Row& row, const ExpSum& s) {
  constexpr int kStep = RowThreads<kWarps>::kThreadsOfRow, kVectors = 4;
  float log_sum = logf(s.sum);
  AmaxPart unused;
  for (int64_t i = 0; i < row.size(); i += kStep * kVectors) {
    const RowPart part = row.From(i);
    float x[kVectors][kPerThread];
    LoadVectors<kStep>(p.x, part, threads.thread(), 0, x);
    for (int v = 0; v < kVectors; ++v) {
      for (float& value : x[v]) value = value - s.largest - log_sum;
    }
    StoreVectors<kStep>(p.log_prob, part, threads.thread(), x, unused);
  }
}

// The first thread of a row adds the sample.
__device__ void AddRow(const Scores& p, int64_t r, const ExpSum& s,
                       LossSum& sum) {
  const LogSum log_sum(s);
  if (p.lse.data) Store(p.lse, r, log_sum.Lse());
  int64_t label = p.losses.labels.At(r);
  float score = label >= 0 ? Load(p.x, r * p.classes + label) : 0.0f;
  p.losses.Add(r, log_sum.LogProbability(score), sum);
}

// kNarrow: the scores are kept as bfloat16.
template <bool kNarrow, int kWarps>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock,
                                  768 / RowThreads<kWarps>::kBlock)
    ScoresKernel(Scores p) {
  using Threads = RowThreads<kWarps>;
  constexpr int kVectors = kNarrow && kWarps > 1 ? 8 : 4;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  LossSum sum;
  for (int64_t r = threads.first(); r < p.rows; r += threads.step()) {
    const Row row = AlignedRow(r, p.classes);
    ExpSum s = ExpSumOfRow<kNarrow, kVectors>(threads, p.x, row);
    if (p.log_prob.data) WriteLogProb(p, threads, row, s);
    if (threads.thread() == 0) AddRow(p, r, s, sum);
  }
  if (threads.thread() == 0) p.losses.parts[threads.first()] = sum;
}

constexpr int kWarpsOfLong = 8;

int64_t ScoresParts(const KernelContext& ctx) {
  const Shape& shape = ScoresShape(ctx, Operand(ctx, 0));
  return AreShort(shape[1]) ? PartsOfRows<1>(shape[0])
                            : PartsOfRows<kWarpsOfLong>(shape[0]);
}

template <int kWarps>
void StartScores(KernelContext& ctx, const Samples& s, Scores p) {
  LossResult result(ctx, s, ScoresParts(ctx));
  p.losses = result.losses;
  p.rows = s.n;
  p.classes = s.classes;
  bool narrow = AreBFloat16({p.x});
  LaunchRows<kWarps>(
      ctx, narrow ? ScoresKernel<true, kWarps> : ScoresKernel<false, kWarps>,
      s.n, p);
  result.Finish();
}

void LossOfScores(KernelContext& ctx, const Samples& s, const Scores& p) {
  CheckOnePerRow(ctx, s, ctx.In(0));
  if (AreShort(s.classes)) return StartScores<1>(ctx, s, p);
  StartScores<kWarpsOfLong>(ctx, s, p);
}

// loss: the mean of -log p of the samples that count; lse of each row.
void CrossEntropy(KernelContext& ctx) {
  Scores p = {};
  const Tensor& x = Operand(ctx, 0);
  p.x = FloatsOf(ctx, 0);
  Samples s =
      SamplesOf(ctx, x, Operand(ctx, 1), true, ctx.Int("ignore_index", -100));
  p.lse = FloatsTo(ctx, 1, {s.n});
  LossOfScores(ctx, s, p);
}

void SoftmaxCrossEntropyLoss(KernelContext& ctx) {
  Scores p = {};
  const Tensor& x = Operand(ctx, 0);
  p.x = FloatsOf(ctx, 0);
  Samples s = SamplesOf(ctx, x, Operand(ctx, 1), ctx.Has("ignore_index"),
                        ctx.Int("ignore_index", 0));
  p.log_prob = FloatsTo(ctx, 1, x.shape());
  LossOfScores(ctx, s, p);
}

// ---- from logarithms of probabilities

struct Picked {
  FloatsIn log_prob;
  Losses losses;
  int64_t samples, classes, inner;
};

int64_t PickBlocks(int64_t samples) {
  return std::min<int64_t>(DivideUp(samples, kThreads), 256);
}
int64_t PickParts(const KernelContext& ctx) {
  return PickBlocks(Operand(ctx, 1).size()) * (kThreads / 32);
}

// Each warp leaves a part.
__global__ void __launch_bounds__(kThreads) PickKernel(Picked p) {
  int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  LossSum sum;
  for (int64_t i = first; i < p.samples;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    int64_t label = p.losses.labels.At(i);
    int64_t n = Quotient(i, p.inner);
    int64_t at = (n * p.classes + label) * p.inner + i - n * p.inner;
    p.losses.Add(i, label >= 0 ? Load(p.log_prob, at) : 0.0f, sum);
  }
  sum = {SumOfWarp(sum.loss), SumOfWarp(sum.weight)};
  if (threadIdx.x % 32 == 0) p.losses.parts[first / 32] = sum;
}

void NegativeLogLikelihoodLoss(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Picked p = {};
  p.log_prob = FloatsOf(ctx, 0);
  Samples s = SamplesOf(ctx, x, Operand(ctx, 1), ctx.Has("ignore_index"),
                        ctx.Int("ignore_index", 0));
  p.samples = s.n * s.inner;
  p.classes = s.classes;
  p.inner = s.inner;
  int64_t blocks = PickBlocks(p.samples);
  LossResult result(ctx, s, PickParts(ctx));
  p.losses = result.losses;
  if (blocks > 0) {
    Launch(PickKernel, static_cast<unsigned>(blocks), kThreads, 0,
           QueueOf(ctx).stream(), p);
  }
  result.Finish();
}

}  // namespace

void FinishLoss(const KernelContext& ctx, const LossSum* parts, int64_t count,
                bool mean, FloatsOut out) {
  if (!out.data) return;
  Launch(FinishLossKernel, 1, kFinishThreads, 0, QueueOf(ctx).stream(), parts,
         count, mean, out);
}

void RegisterLoss(KernelRegistry& r) {
  auto of_scores = [](KernelContext& ctx) { return BytesOf(ScoresParts(ctx)); };
  auto of_picked = [](KernelContext& ctx) { return BytesOf(PickParts(ctx)); };
  r.Add("CrossEntropy", CrossEntropy,
        {.narrow_in = {0}, .workspace = of_scores}, kDomain);
  r.Add("NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss,
        {.workspace = of_picked});
  r.Add("SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss,
        {.workspace = of_scores});
}

}  // namespace onnx_fp8::cuda
