// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kIgnored = -100;

// The elements of the first `rows` samples.
int64_t Prefix(const Tensor& t, int64_t rows) {
  return t.rank() == 0 ? 1 : t.size() / std::max<int64_t>(1, t.dim(0)) * rows;
}

// -log softmax(logits)[label].
double CrossEntropy(const Tensor& logits, int64_t row, int64_t classes,
                    int64_t label) {
  Check(label >= 0 && label < classes, "expected labels in [0, ", classes,
        ") or -100, got ", label);
  double most = -INFINITY;
  for (int64_t c = 0; c < classes; ++c) {
    most = std::max(most, DoubleAt(logits, row * classes + c));
  }
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    sum += std::exp(DoubleAt(logits, row * classes + c) - most);
  }
  return most + std::log(sum) - DoubleAt(logits, row * classes + label);
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

class Pass {
 public:
  Pass(TrainingSession& session, const DataLayout& layout, const LossSpec& loss)
      : session_(session), layout_(layout), loss_(loss) {}

  void Add(TensorMap batch) {
    int64_t rows = Rows(batch);
    bool partial = layout_.fixed_batch && rows < layout_.batch_size;
    bool computed = loss_.kind.rfind("output:", 0) == 0;
    if (partial && computed) {
      std::cerr << "onnx-fp8: note: the last " << rows
                << " samples are left out: the model takes batches of "
                << layout_.batch_size << " and computes its own loss\n";
      return;
    }
    if (partial) Fill(&batch);
    EvalResult result = session_.Eval(batch);
    samples_ += rows;
    if (computed) {
      sum_ += result.loss * static_cast<double>(rows);
      count_ += rows;
      return;
    }
    const Tensor& output = result.outputs.at(loss_.logits);
    const Tensor& label = batch.at(loss_.label);
    if (partial) {
      LossSum part = LossOfRows(loss_, output, label, rows);
      sum_ += part.sum;
      count_ += part.count;
    } else {
      int64_t weight = Weight(label);
      // The mean over nothing is not a number.
      if (weight > 0) sum_ += result.loss * static_cast<double>(weight);
      count_ += weight;
    }
    if (HasHits(label)) {
      Hits hits = CountHits(loss_, output, label, rows);
      hits_.right += hits.right;
      hits_.count += hits.count;
    }
    sequences_ = sequences_ || label.rank() >= 2;
  }

  Evaluation Result() const {
    Evaluation e;
    e.samples = samples_;
    e.loss = count_ > 0 ? sum_ / static_cast<double>(count_) : NAN;
    if (hits_.count > 0) {
      e.accuracy =
          static_cast<double>(hits_.right) / static_cast<double>(hits_.count);
    }
    if (loss_.kind == "cross_entropy" && sequences_) {
      e.perplexity = std::exp(e.loss);
      e.tokens = count_;
    }
    return e;
  }

 private:
  int64_t Rows(const TensorMap& batch) const {
    for (const DatasetInput& input : layout_.inputs) {
      if (!input.whole) return batch.at(input.name).dim(0);
    }
    return 0;
  }

  void Fill(TensorMap* batch) const {
    for (const DatasetInput& input : layout_.inputs) {
      if (input.whole) continue;
      Tensor& t = batch->at(input.name);
      t = Filled(t, layout_.batch_size);
    }
  }

  // The number of elements over which the loss of a full batch is a mean.
  int64_t Weight(const Tensor& label) const {
    if (loss_.kind != "cross_entropy") return label.size();
    int64_t count = 0;
    for (int64_t i = 0; i < label.size(); ++i) {
      count += IntAt(label, i) != kIgnored;
    }
    return count;
  }

  bool HasHits(const Tensor& label) const {
    return loss_.kind == "bce_with_logits" ||
           (loss_.kind == "cross_entropy" && label.rank() == 1);
  }

  TrainingSession& session_;
  const DataLayout& layout_;
  const LossSpec& loss_;
  double sum_ = 0;
  int64_t count_ = 0;
  int64_t samples_ = 0;
  Hits hits_;
  bool sequences_ = false;
};

}  // namespace

LossSum LossOfRows(const LossSpec& loss, const Tensor& output,
                   const Tensor& label, int64_t rows) {
  LossSum result;
  int64_t n = Prefix(label, rows);
  if (loss.kind == "cross_entropy") {
    int64_t classes = output.dim(-1);
    for (int64_t i = 0; i < n; ++i) {
      int64_t target = IntAt(label, i);
      if (target == kIgnored) continue;
      result.sum += CrossEntropy(output, i, classes, target);
      ++result.count;
    }
    return result;
  }
  for (int64_t i = 0; i < n; ++i) {
    double y = DoubleAt(output, i);
    double t = DoubleAt(label, i);
    result.sum += loss.kind == "mse" ? (y - t) * (y - t)
                                     : std::max(y, 0.0) - y * t +
                                           std::log1p(std::exp(-std::abs(y)));
  }
  result.count = n;
  return result;
}

Hits CountHits(const LossSpec& loss, const Tensor& output, const Tensor& label,
               int64_t rows) {
  Hits hits;
  int64_t n = Prefix(label, rows);
  if (loss.kind != "cross_entropy") {
    for (int64_t i = 0; i < n; ++i) {
      hits.right += (DoubleAt(output, i) > 0) == (DoubleAt(label, i) > 0.5);
    }
    hits.count = n;
    return hits;
  }
  int64_t classes = output.dim(-1);
  for (int64_t i = 0; i < n; ++i) {
    int64_t target = IntAt(label, i);
    if (target == kIgnored) continue;
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (DoubleAt(output, i * classes + c) >
          DoubleAt(output, i * classes + best)) {
        best = c;
      }
    }
    hits.right += best == target;
    ++hits.count;
  }
  return hits;
}

Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout, const LossSpec& loss,
                    const std::function<bool()>& stop) {
  Pass pass(session, layout, loss);
  for (int64_t i = 0; i < data.batches_per_epoch(); ++i) {
    if (stop && stop()) {
      Evaluation e = pass.Result();
      e.complete = false;
      return e;
    }
    pass.Add(data.Batch(i));
  }
  return pass.Result();
}

}  // namespace onnx_fp8
