// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "training/make_provider.h"
#include "training/run/data_layout.h"
#include "training/step/loss.h"
#include "training/step/loss_values.h"

namespace onnx_fp8 {
namespace {

// The elements of the first `rows` samples.
Tensor FirstRows(const Tensor& t, int64_t rows) {
  if (t.rank() == 0 || t.dim(0) <= rows) return t;
  Shape shape = t.shape();
  shape[0] = rows;
  Tensor out = Tensor::Allocate(t.dtype(), shape);
  if (out.bytes() > 0) std::memcpy(out.raw(), t.raw(), out.bytes());
  return out;
}

// Appends copies of the last row until there are `rows`.
Tensor Filled(const Tensor& t, int64_t rows) {
  Shape shape = t.shape();
  size_t have = t.bytes();
  size_t row = have / static_cast<size_t>(shape[0]);
  shape[0] = rows;
  Tensor out = Tensor::Allocate(t.dtype(), shape);
  auto* bytes = static_cast<std::byte*>(out.raw());
  if (have > 0) std::memcpy(bytes, t.raw(), have);
  for (size_t at = have; at < out.bytes(); at += row) {
    std::memcpy(bytes + at, bytes + have - row, row);
  }
  return out;
}

constexpr char kNothingCounts[] =
    "no label of the data counts, so there is no loss";

// Whether the model takes more samples than these.
bool IsPartial(int64_t rows, const DataLayout& layout) {
  return layout.fixed_batch && rows < layout.batch_size;
}

void Fill(const DataLayout& layout, TensorMap* batch) {
  for (const DatasetInput& input : layout.inputs) {
    if (input.whole) continue;
    Tensor& t = batch->at(input.name);
    t = Filled(t, layout.batch_size);
  }
}

class EvaluationPass {
 public:
  EvaluationPass(TrainingSession& session, const DataLayout& layout,
                 const OutputObserver& observer)
      : session_(session),
        layout_(layout),
        observer_(observer),
        loss_(session.Loss()),
        kind_(FindLoss(loss_.kind)) {}

  void Add(TensorMap batch, bool measures) {
    int64_t rows = CountSamples(batch, layout_);
    const bool partial = IsPartial(rows, layout_);
    if (partial && !kind_) {
      remark_ = Concat("the last ", rows,
                       " samples are left out: the model takes batches of ",
                       layout_.batch_size, " and computes its own loss");
      return;
    }
    if (partial) Fill(layout_, &batch);
    EvalResult result = session_.Eval(batch, measures);
    samples_ += rows;
    JoinCasts(result.casts, &casts_);
    of_averages_ = result.of_averages;
    if (observer_) Show(result.outputs, batch, rows);
    if (!kind_) {
      KeepCause(result);
      Sum(result.loss, static_cast<double>(rows));
      return;
    }
    loss_ = session_.Loss();  // the batch may have shown the class axis
    Tensor output = result.outputs.at(loss_.logits);
    Tensor label = batch.at(loss_.label);
    if (partial) {
      output = FirstRows(output, rows);
      label = FirstRows(label, rows);
      if (std::isfinite(result.loss)) {
        result.loss = LossOf(loss_, output, label, *evaluator_);
      }
    }
    const double weight = WeightOfLabels(loss_, output, label, *evaluator_);
    // The mean over no label is not finite, either.
    if (weight > 0) KeepCause(result);
    Sum(result.loss, weight);
    const int64_t count = CountLabels(loss_, output, label);
    const bool tokens = IsLikelihood(loss_) && HasTokens(loss_, output, label);
    if (tokens) tokens_ += count;
    perplexity_ |= metrics_.empty() ? tokens : Wants("perplexity");
    // For tokens the perplexity says the same.
    if (metrics_.empty() ? kind_->hits && !tokens : Wants("accuracy")) {
      hits_ += CountHits(loss_, output, label, *evaluator_);
      hits_of_ += count;
    }
  }

  Evaluation Result() const {
    Evaluation e;
    e.samples = samples_;
    e.remark = remark_;
    e.loss = weight_ > 0 ? sum_ / weight_ : NAN;
    if (weight_ == 0 && samples_ > 0) {
      e.remark +=
          e.remark.empty() ? kNothingCounts : Concat("; ", kNothingCounts);
    }
    e.cause = cause_;
    e.of_averages = of_averages_;
    if (hits_of_ > 0 && cause_.empty()) {
      e.accuracy = static_cast<double>(hits_) / static_cast<double>(hits_of_);
    }
    if (perplexity_) e.perplexity = std::exp(e.loss);
    e.tokens = tokens_;
    e.casts = casts_;
    return e;
  }

 private:
  // The outputs of the samples, without rows that fill the batch.
  void Show(TensorMap outputs, const TensorMap& batch, int64_t rows) const {
    auto of_samples = [&](const Tensor& t) {
      bool filled = t.rank() > 0 && t.dim(0) == layout_.batch_size;
      return layout_.fixed_batch && filled ? FirstRows(t, rows) : t;
    };
    for (auto& [name, output] : outputs) output = of_samples(output);
    auto label = batch.find(loss_.label);
    if (label == batch.end()) return observer_(outputs, nullptr);
    const Tensor own = of_samples(label->second);
    observer_(outputs, &own);
  }

  void KeepCause(const EvalResult& result) {
    if (cause_.empty()) cause_ = result.cause;
  }

  // The mean over nothing is not a number.
  void Sum(double loss, double weight) {
    if (weight > 0) sum_ += loss * weight;
    weight_ += weight;
  }

  bool Wants(const char* metric) const {
    return std::ranges::count(metrics_, metric) > 0;
  }

  TrainingSession& session_;
  const DataLayout& layout_;
  const OutputObserver& observer_;
  const std::vector<std::string>& metrics_ = session_.Options().metrics;
  LossSpec loss_;
  const LossKind* kind_;  // null: the model computes its own loss
  std::unique_ptr<Evaluator> evaluator_ = MakeEvaluator();
  double sum_ = 0;
  double weight_ = 0;
  int64_t samples_ = 0;
  int64_t hits_ = 0;
  int64_t hits_of_ = 0;
  int64_t tokens_ = 0;
  bool perplexity_ = false;
  bool of_averages_ = false;
  std::string remark_, cause_;
  std::vector<MeasuredCast> casts_;
};

}  // namespace

Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout, const std::function<bool()>& stop,
                    const OutputObserver& observer, const StatsSpec& stats) {
  EvaluationPass pass(session, layout, observer);
  for (int64_t i = 0; i < data.batches_per_epoch(); ++i) {
    if (stop && stop()) {
      Evaluation e = pass.Result();
      e.complete = false;
      return e;
    }
    pass.Add(data.Batch(i), stats.Measures(i + 1));
  }
  return pass.Result();
}

void PrepareEvaluation(TrainingSession& session, const Dataset& data,
                       const DataLayout& layout) {
  if (data.spec().source || data.batches_per_epoch() == 0) return;
  TensorMap batch = data.Batch(0);
  if (IsPartial(CountSamples(batch, layout), layout)) {
    if (!FindLoss(session.Loss().kind)) return;  // it is left out
    Fill(layout, &batch);
  }
  session.PrepareEval(batch);
}

}  // namespace onnx_fp8
