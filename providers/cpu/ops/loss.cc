// SPDX-License-Identifier: Apache-2.0
//
// Losses over classes. Scores are (N, C, D…), labels (N, D…); a sample is one
// of the N · D… label places.
#include <algorithm>
#include <cmath>
#include <vector>

#include "providers/cpu/amax_meter.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/samples.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kIgnored = -1;

struct Samples : SampleSizes {
  std::vector<int64_t> labels;  // n · inner; kIgnored: does not count
};

// Errors: shapes that do not fit, a label that is no class.
Samples SamplesOf(const KernelContext& ctx, const Tensor& scores,
                  const Tensor& labels, bool can_ignore, int64_t ignored) {
  Samples s = {SizesOf(ctx, scores, labels), ToInts(labels)};
  for (int64_t& label : s.labels) {
    if (can_ignore && label == ignored) {
      label = kIgnored;
      continue;
    }
    if (label >= 0 && label < s.classes) continue;
    Fail(ExpectedLabels(ctx, s.classes, can_ignore, ignored), label);
  }
  return s;
}

// The number of labels that count.
int64_t Counted(const Samples& s) {
  int64_t count = 0;
  for (int64_t label : s.labels) count += label != kIgnored;
  return count;
}

// The logarithm of a row's Σ e^x, in two parts.
template <typename T>
struct LogSum {
  T largest;    // x
  double rest;  // log Σ e^(x - largest)

  LogSum(const T* x, int64_t classes)
      : largest(VectorMax(x, classes)),
        rest(std::log(
            VectorExpShifted(x, largest, static_cast<T*>(nullptr), classes))) {}

  T Lse() const { return static_cast<T>(largest + rest); }

  // The logarithm of the label's probability; 0 without a label.
  double LogProbability(const T* x, int64_t label) const {
    if (label == kIgnored) return 0;
    return (static_cast<double>(x[label]) - static_cast<double>(largest)) -
           rest;
  }
};

// log_softmax of one row; `out` may be null. Returns the logarithm of the
// label's probability, 0 without a label.
template <typename T>
double LogSoftmaxRow(const T* x, T* out, int64_t classes, int64_t label) {
  LogSum<T> sum(x, classes);
  if (out) {
    T rest = static_cast<T>(sum.rest);
    for (int64_t c = 0; c < classes; ++c) out[c] = (x[c] - sum.largest) - rest;
  }
  return sum.LogProbability(x, label);
}

// log p of each sample's class; fills log_prob (like x) unless it is null.
template <typename T>
std::vector<double> LogProbabilities(const T* x, T* log_prob,
                                     const Samples& s) {
  std::vector<double> log_p(s.labels.size());
  int64_t count = s.n * s.inner;
  ParallelFor(count, RowsPerTask(s.classes), [&](int64_t begin, int64_t end) {
    std::vector<T> row, result;
    if (s.inner > 1) {
      row.resize(static_cast<size_t>(s.classes));
      result.resize(row.size());
    }
    for (int64_t i = begin; i < end; ++i) {
      int64_t label = s.labels[static_cast<size_t>(i)];
      double& log_p_i = log_p[static_cast<size_t>(i)];
      int64_t start = i / s.inner * s.classes * s.inner + i % s.inner;
      if (s.inner == 1) {
        log_p_i = LogSoftmaxRow(
            x + start, log_prob ? log_prob + start : nullptr, s.classes, label);
        continue;
      }
      for (int64_t c = 0; c < s.classes; ++c) {
        row[static_cast<size_t>(c)] = x[start + c * s.inner];
      }
      log_p_i = LogSoftmaxRow(row.data(), log_prob ? result.data() : nullptr,
                              s.classes, label);
      for (int64_t c = 0; log_prob && c < s.classes; ++c) {
        log_prob[start + c * s.inner] = result[static_cast<size_t>(c)];
      }
    }
  });
  return log_p;
}

// log p of each sample's class, read from logarithms of probabilities.
template <typename T>
std::vector<double> Picked(const T* log_prob, const Samples& s) {
  std::vector<double> log_p(s.labels.size(), 0);
  for (size_t i = 0; i < log_p.size(); ++i) {
    int64_t at = static_cast<int64_t>(i), label = s.labels[i];
    if (label == kIgnored) continue;
    log_p[i] = static_cast<double>(
        log_prob[(at / s.inner * s.classes + label) * s.inner + at % s.inner]);
  }
  return log_p;
}

// Output 0: -w log p by sample, or their sum, or that sum divided by the sum of
// the weights (0/0 if no sample counts, as in PyTorch). `w`: the weights of
// classes, null: all 1. Errors: their dtype or shape.
template <typename T>
void WriteLoss(KernelContext& ctx, const Samples& s,
               const std::vector<double>& log_p, const Tensor* w = nullptr) {
  std::vector<double> weights(static_cast<size_t>(s.classes), 1);
  if (w) {
    Check(w->dtype() == DTypeOf<T>() && w->shape() == Shape{s.classes}, "[",
          ctx.Where(), "] expected one weight for each of ", s.classes,
          " classes, got ", Name(w->dtype()), " ", ToString(w->shape()));
    weights.assign(w->data<T>(), w->data<T>() + s.classes);
  }
  enum class By { kNone, kSum, kMean };
  auto by = ChoiceIn<By>(ctx, "reduction", "mean", {"none", "sum", "mean"});
  bool none = by == By::kNone, mean = by == By::kMean;
  Tensor loss = Result(ctx, 0, DTypeOf<T>(), none ? s.shape : Shape{});
  double sum = 0, total = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    bool counts = s.labels[i] != kIgnored;
    double w = counts ? weights[static_cast<size_t>(s.labels[i])] : 0;
    double value = counts ? -w * log_p[i] : 0;
    if (none) loss.data<T>()[i] = static_cast<T>(value);
    sum += value;
    total += w;
  }
  if (!none) loss.data<T>()[0] = static_cast<T>(mean ? sum / total : sum);
}

// Null without weights.
const Tensor* Weights(const KernelContext& ctx) {
  return ctx.HasIn(2) ? &ctx.In(2) : nullptr;
}

void SoftmaxCrossEntropyLoss(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Samples s = SamplesOf(ctx, x, Operand(ctx, 1), ctx.Has("ignore_index"),
                        ctx.Int("ignore_index", 0));
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    Tensor log_prob;
    if (ctx.HasOut(1)) log_prob = Result(ctx, 1, x.dtype(), x.shape());
    WriteLoss<T>(
        ctx, s,
        LogProbabilities(x.data<T>(),
                         log_prob.defined() ? log_prob.data<T>() : nullptr, s),
        Weights(ctx));
  });
}

void NegativeLogLikelihoodLoss(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Samples s = SamplesOf(ctx, x, Operand(ctx, 1), ctx.Has("ignore_index"),
                        ctx.Int("ignore_index", 0));
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    WriteLoss<T>(ctx, s, Picked(x.data<T>(), s), Weights(ctx));
  });
}

// (exp(log_prob) - hot) · share, 0 for samples that do not count.
template <typename T>
void ScoresGradient(const T* log_prob, T* dx, const Samples& s, T share) {
  int64_t block = s.classes * s.inner;
  ParallelFor(s.n, RowsPerTask(block), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t* labels = s.labels.data() + n * s.inner;
      const T* in = log_prob + n * block;
      T* out = dx + n * block;
      VectorExp(in, out, block);
      for (int64_t c = 0; c < s.classes; ++c) {
        T* row = out + c * s.inner;
        for (int64_t i = 0; i < s.inner; ++i) {
          T miss = row[i] - (labels[i] == c ? T{1} : T{0});
          row[i] = labels[i] == kIgnored ? T{0} : miss * share;
        }
      }
    }
  });
}

void SoftmaxCrossEntropyGrad(KernelContext& ctx) {
  double dloss = NumberIn(ctx, 0);
  const Tensor& log_prob = Operand(ctx, 1);
  Samples s = SamplesOf(ctx, log_prob, Operand(ctx, 2), true,
                        ctx.Int("ignore_index", -100));
  Tensor dx = Result(ctx, 0, log_prob.dtype(), log_prob.shape());
  DispatchFloat(log_prob.dtype(), ctx.Where(), [&]<typename T>() {
    T share = static_cast<T>(dloss) /
              static_cast<T>(std::max<int64_t>(Counted(s), 1));
    ScoresGradient(log_prob.data<T>(), dx.data<T>(), s, share);
  });
}

// --- ours, of float or double scores (N, C) ---------------------------------

// Errors: scores with other axes, and as SamplesOf's.
Samples SamplesOfRows(const KernelContext& ctx, const Tensor& scores,
                      const Tensor& labels) {
  Samples s =
      SamplesOf(ctx, scores, labels, true, ctx.Int("ignore_index", -100));
  CheckOnePerRow(ctx, s, scores);
  return s;
}

// loss: the mean of -log p of the samples that count; lse of each row.
void CrossEntropy(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Samples s = SamplesOfRows(ctx, x, Operand(ctx, 1));
  DType dtype = ComputedAs(x);
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    std::vector<double> log_p(s.labels.size());
    T* lse = ctx.HasOut(1) ? Result(ctx, 1, dtype, {s.n}).data<T>() : nullptr;
    StoredIn<T> scores(x);
    ParallelFor(s.n, RowsPerTask(s.classes), [&](int64_t begin, int64_t end) {
      T* wide = scores.narrow() ? WideRows<T>(1, s.classes) : nullptr;
      for (int64_t i = begin; i < end; ++i) {
        const T* row = scores.Read(i * s.classes, s.classes, wide);
        LogSum<T> sum(row, s.classes);
        if (lse) lse[i] = sum.Lse();
        auto at = static_cast<size_t>(i);
        log_p[at] = sum.LogProbability(row, s.labels[at]);
      }
    });
    WriteLoss<T>(ctx, s, log_p);
  });
}

// The factor that all slopes have: dloss divided by the samples that count.
template <typename T>
T ShareOf(double dloss, const Samples& s) {
  return static_cast<T>(static_cast<T>(dloss) /
                        static_cast<T>(std::max<int64_t>(Counted(s), 1)));
}

// Result `index`, the gradient of the scores x. row(in, out, i) computes row i;
// `out` may be `in`.
template <typename T, typename Row>
void WriteGradient(KernelContext& ctx, size_t index, const Samples& s,
                   const Tensor& x, const Row& row) {
  Tensor dx = StoredResult(ctx, index, ComputedAs(x), x.shape());
  AmaxMeter meter(ctx, index);
  StoredIn<T> scores(x);
  StoredOut<T> result(dx);
  const int64_t n = s.classes;
  const bool narrow = scores.narrow() || result.narrow();
  ParallelFor(s.n, RowsPerTask(n), [&](int64_t begin, int64_t end) {
    AmaxMeter::Part part(meter);
    T* wide = narrow ? WideRows<T>(1, n) : nullptr;
    for (int64_t i = begin; i < end; ++i) {
      const T* in = scores.Read(i * n, n, wide);
      T* out = result.At(i * n, wide);
      row(in, out, static_cast<size_t>(i));
      part.Add(out, n);
      result.Write(i * n, n, out);
    }
  });
}

// A row of it: (e^(scores - lse) - hot) · share; 0 for a sample that does not
// count.
template <typename T>
void WriteRow(const T* in, T* out, int64_t classes, T lse, int64_t label,
              T share) {
  if (label == kIgnored) {
    std::fill_n(out, classes, T{0});
    return;
  }
  OnBestIsa([=] {
    ONNX_FP8_IVDEP  // out is in or does not overlap it
    for (int64_t c = 0; c < classes; ++c)
      out[c] = math::QuickExp(in[c] - lse) * share;
  });
  out[label] -= share;
}

// (dloss, scores, lse, labels) -> dscores
void CrossEntropyGrad(KernelContext& ctx) {
  double dloss = NumberIn(ctx, 0);
  const Tensor &x = Operand(ctx, 1), &lse = Operand(ctx, 2);
  Samples s = SamplesOfRows(ctx, x, Operand(ctx, 3));
  CheckOperand(ctx, 2, ComputedAs(x), {s.n});
  DispatchFloat(ComputedAs(x), ctx.Where(), [&]<typename T>() {
    const T share = ShareOf<T>(dloss, s);
    WriteGradient<T>(ctx, 0, s, x, [&](const T* in, T* out, size_t i) {
      WriteRow(in, out, s.classes, lse.data<T>()[i], s.labels[i], share);
    });
  });
}

// (dloss, scores, labels) -> loss, dscores. The bits equal CrossEntropy's and
// CrossEntropyGrad's, but each row is read from memory once.
void CrossEntropyWithGrad(KernelContext& ctx) {
  double dloss = NumberIn(ctx, 0);
  const Tensor& x = Operand(ctx, 1);
  Samples s = SamplesOfRows(ctx, x, Operand(ctx, 2));
  DispatchFloat(ComputedAs(x), ctx.Where(), [&]<typename T>() {
    const T share = ShareOf<T>(dloss, s);
    std::vector<double> log_p(s.labels.size());
    WriteGradient<T>(ctx, 1, s, x, [&](const T* in, T* out, size_t i) {
      const int64_t label = s.labels[i];
      T lse = 0;
      if (label != kIgnored) {
        LogSum<T> sum(in, s.classes);
        log_p[i] = sum.LogProbability(in, label);
        lse = sum.Lse();
      }
      WriteRow(in, out, s.classes, lse, label, share);
    });
    WriteLoss<T>(ctx, s, log_p);
  });
}

}  // namespace

void RegisterLoss(KernelRegistry& r) {
  r.Add("CrossEntropy", CrossEntropy, {.narrow_in = {0}}, kDomain);
  r.Add("CrossEntropyGrad", CrossEntropyGrad,
        {.in_place = {{1, 0}},
         .measures = {0},
         .narrow_in = {1},
         .narrow_out = {0}},
        kDomain);
  r.Add("CrossEntropyWithGrad", CrossEntropyWithGrad,
        {.in_place = {{1, 1}},
         .measures = {1},
         .narrow_in = {1},
         .narrow_out = {1}},
        kDomain);
  r.Add("NegativeLogLikelihoodLoss", Widened<NegativeLogLikelihoodLoss>);
  r.Add("SoftmaxCrossEntropyGrad", Widened<SoftmaxCrossEntropyGrad>,
        {.in_place = {{1, 0}}}, kDomain);
  r.Add("SoftmaxCrossEntropyLoss", Widened<SoftmaxCrossEntropyLoss>);
}

}  // namespace onnx_fp8
