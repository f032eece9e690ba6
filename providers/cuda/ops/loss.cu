// SPDX-License-Identifier: Apache-2.0
//
// Losses over classes, and their gradients. Scores are (N, C), labels (N);
// other axes of one element may follow. A label that is no class is complained
// of, makes the loss NaN, and counts as left out elsewhere. Sums over samples
// are in double. Traffic: scores are read once, and once more for log_prob;
// log_prob and gradients are written once.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "providers/arguments.h"
#include "providers/cuda/core/complain.h"
#include "providers/cuda/core/exp_sum.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// ---- labels

constexpr int64_t kLeftOut = -1, kNoClass = -2;

struct Labels {
  const void* data;
  bool wide;  // int64, else int32
  bool can_ignore;
  int64_t ignored, classes;
  Complaint* complaint;
  uint32_t message;

  // The class of sample i, or kLeftOut, or kNoClass and a complaint.
  __device__ int64_t At(int64_t i) const {
    int64_t label = wide ? static_cast<const int64_t*>(data)[i]
                         : static_cast<const int32_t*>(data)[i];
    if (can_ignore && label == ignored) return kLeftOut;
    if (label >= 0 && label < classes) return label;
    Complain(complaint, message, label);
    return kNoClass;
  }
};

Labels LabelsOf(const KernelContext& ctx, const Tensor& labels, int64_t classes,
                bool can_ignore, int64_t ignored) {
  Queue& queue = QueueOf(ctx);
  std::string message = Concat(
      "[", ctx.Where(), "] expected labels in 0 … ", classes - 1,
      can_ignore ? Concat(" or ", ignored, " (left out)") : "", ", got ");
  return {labels.raw(),
          labels.dtype() == DType::kInt64,
          can_ignore,
          ignored,
          classes,
          queue.complaint(),
          queue.MessageNumber(message)};
}

struct Samples {
  int64_t n, classes, inner;
  Shape shape;  // of the labels
  Labels labels;
};

// Errors: scores that have no classes.
const Shape& ScoresShape(const KernelContext& ctx, const Tensor& scores) {
  Check(scores.rank() >= 2, "[", ctx.Where(),
        "] expected scores of shape (N, C, …), got ", ToString(scores.shape()));
  return scores.shape();
}

// Errors: shapes that do not fit.
Samples SamplesOf(const KernelContext& ctx, const Tensor& scores,
                  const Tensor& labels, bool can_ignore, int64_t ignored) {
  Shape expected = ScoresShape(ctx, scores);
  Samples s = {};
  s.n = expected[0];
  s.classes = expected[1];
  expected.erase(expected.begin() + 1);
  Check(labels.shape() == expected, "[", ctx.Where(),
        "] expected labels of shape ", ToString(expected), ", got ",
        ToString(labels.shape()));
  Check(labels.dtype() == DType::kInt32 || labels.dtype() == DType::kInt64, "[",
        ctx.Where(), "] expected int32 or int64 labels, got ",
        Name(labels.dtype()));
  s.inner = s.n == 0 ? 0 : labels.size() / s.n;
  s.shape = std::move(expected);
  s.labels = LabelsOf(ctx, labels, s.classes, can_ignore, ignored);
  return s;
}

// Errors: other axes have several elements.
void CheckOnePerRow(const KernelContext& ctx, const Samples& s,
                    const Tensor& scores) {
  Check(s.inner == 1 || s.n == 0, "[", ctx.Where(),
        "] expected scores (N, C), got ", ToString(scores.shape()));
}

// ---- losses of samples, and their sum

struct LossSum {
  double loss = 0, weight = 0;
};

enum class By { kNone, kSum, kMean };

struct Losses {
  Labels labels;
  const float* weights;  // of classes; null: all 1
  FloatsOut by_sample;   // null: not asked for
  LossSum* parts;

  // Adds sample i, whose class has the probability e^log_p.
  __device__ void Add(int64_t i, double log_p, LossSum& sum) const {
    int64_t label = labels.At(i);
    double value = label == kNoClass ? kNotANumber : 0.0;
    if (label >= 0) {
      double weight = weights ? weights[label] : 1.0f;
      value = -weight * log_p;
      sum.weight += weight;
    }
    sum.loss += value;
    if (by_sample.data) Store(by_sample, i, static_cast<float>(value));
  }
};

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

// The workspace of a loss of so many parts.
size_t BytesOf(int64_t parts) {
  return static_cast<size_t>(parts) * sizeof(LossSum);
}

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
    if (by == By::kNone || !out.data) return;
    Launch(FinishLossKernel, 1, kFinishThreads, 0, QueueOf(ctx).stream(),
           losses.parts, count, by == By::kMean, out);
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
  double log_sum = logf(s.sum);
  if (p.lse.data) Store(p.lse, r, static_cast<float>(s.largest + log_sum));
  int64_t label = p.losses.labels.At(r);
  double score = label >= 0 ? Load(p.x, r * p.classes + label) : 0.0f;
  p.losses.Add(r, score - s.largest - log_sum, sum);
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
constexpr bool AreShort(int64_t classes) { return classes <= 1024; }

// One for each row that is read at the same time.
template <int kWarps>
int64_t PartsOfRows(int64_t rows) {
  constexpr int64_t kRows = RowThreads<kWarps>::kRows;
  return std::min<int64_t>(DivideUp(rows, kRows), kMostBlocks) * kRows;
}

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

// ---- gradients of the mean

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
    Count count = *p.count > 0 ? *p.count : 1;
    float share = Load(p.dloss, 0) / static_cast<float>(count);
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
  Raw4 raw[kPartVectors];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kPartVectors; ++v) {
    int64_t column = first + v * kStep;
    if (column < classes) raw[v] = LoadRaw4(scores, row * classes + column);
  }
  Count count = *p.count > 0 ? *p.count : 1;
  float share = Load(p.dloss, 0) / static_cast<float>(count);
  const RowTerms terms = TermsOf(p, row);
  bool counts = terms.label >= 0;
  AmaxPart seen;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kPartVectors; ++v) {
    int64_t column = first + v * kStep;
    if (column >= classes) continue;
    float x[kPerThread];
    ToFloats(scores.kept, raw[v], x);
    ONNX_FP8_UNROLL
    for (int k = 0; k < kPerThread; ++k) {
      x[k] = counts ? ExpSum::Exp(x[k] - terms.shift) * share : 0.0f;
    }
    int64_t hot = terms.label - column;
    if (counts && hot >= 0 && hot < kPerThread) {
      ONNX_FP8_UNROLL
      for (int k = 0; k < kPerThread; ++k) {
        if (k == hot) x[k] -= share;
      }
    }
    Store4(dx, row * classes + column, x);
    if (p.amax) seen.Add4(x);
  }
  seen.AddOfBlock(p.amax);
}

// Operand 0 is dloss, operand 1 the scores or logarithms of probabilities.
void StartScoresGrad(KernelContext& ctx, const Samples& s, FloatsIn lse) {
  const Tensor& dloss = Operand(ctx, 0);
  Check(dloss.size() == 1, "[", ctx.Where(),
        "] expected one number as operand 0, got shape ",
        ToString(dloss.shape()));
  CheckOnePerRow(ctx, s, ctx.In(1));
  cudaStream_t stream = QueueOf(ctx).stream();
  auto* count = static_cast<Count*>(ctx.Workspace(CountWorkspace(ctx)));
  ScoresGrad p = {.dloss = FloatsOf(ctx, 0),
                  .x = FloatsOf(ctx, 1),
                  .lse = lse,
                  .labels = s.labels,
                  .count = count,
                  .dx = FloatsTo(ctx, 0, ctx.In(1).shape()),
                  .amax = ClearedAmax(ctx, 0),
                  .n = s.n * s.classes};
  if (p.n == 0 || !p.dx.data) return;
  ONNX_FP8_CUDA(cudaMemsetAsync(count, 0, sizeof(Count), stream));
  int64_t blocks = std::min<int64_t>(DivideUp(s.n, kThreads), kMostBlocks);
  Launch(CountKernel, static_cast<unsigned>(blocks), kThreads, 0, stream,
         s.labels, s.n, count);
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

}  // namespace

void RegisterLoss(KernelRegistry& r) {
  auto of_scores = [](KernelContext& ctx) { return BytesOf(ScoresParts(ctx)); };
  auto of_picked = [](KernelContext& ctx) { return BytesOf(PickParts(ctx)); };
  r.Add("CrossEntropy", CrossEntropy,
        {.narrow_in = {0}, .workspace = of_scores}, kDomain);
  r.Add("CrossEntropyGrad", CrossEntropyGrad,
        {.in_place = {{1, 0}},
         .measures = {0},
         .narrow_in = {1},
         .narrow_out = {0},
         .workspace = CountWorkspace},
        kDomain);
  r.Add("NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss,
        {.workspace = of_picked});
  r.Add("SoftmaxCrossEntropyGrad", SoftmaxCrossEntropyGrad,
        {.in_place = {{1, 0}}, .workspace = CountWorkspace}, kDomain);
  r.Add("SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss,
        {.workspace = of_scores});
}

}  // namespace onnx_fp8::cuda
