// SPDX-License-Identifier: Apache-2.0
//
// Losses of samples and their sum. Sums over samples are in double: threads
// leave parts, which FinishLoss adds up in a fixed order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "providers/cuda/core/exp_sum.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/class_labels.h"

namespace onnx_fp8::cuda {

struct LossSum {
  double loss = 0, weight = 0;
};

struct Losses {
  Labels labels;
  const float* weights;  // of classes; null: all 1
  FloatsOut by_sample;   // null: not asked for
  LossSum* parts;

  // Adds sample i, whose class has the probability e^log_p.
  __device__ void Add(int64_t i, double log_p, LossSum& sum) const {
    int64_t label = labels.At(i);
    double value =
        label == kNoClass ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    if (label >= 0) {
      double weight = weights ? weights[label] : 1.0f;
      value = -weight * log_p;
      sum.weight += weight;
    }
    sum.loss += value;
    if (by_sample.data) Store(by_sample, i, static_cast<float>(value));
  }
};

// The logarithm of a row's Σ e^x, in two parts.
struct LogSum {
  float largest;  // x
  double rest;    // log Σ e^(x - largest)

  __device__ explicit LogSum(const ExpSum& s)
      : largest(s.largest), rest(logf(s.sum)) {}

  __device__ float Lse() const { return static_cast<float>(largest + rest); }

  // The logarithm of the probability of a class that has this score.
  __device__ double LogProbability(float score) const {
    return static_cast<double>(score) - largest - rest;
  }
};

// Short rows have a warp each, longer ones a block.
constexpr bool AreShort(int64_t classes) { return classes <= 1024; }

// One part for each row that is read at the same time.
template <int kWarps>
int64_t PartsOfRows(int64_t rows) {
  constexpr int64_t kRows = RowThreads<kWarps>::kRows;
  return std::min<int64_t>(DivideUp(rows, kRows), kMostBlocks) * kRows;
}

// The workspace of a loss, by its number of parts.
inline size_t BytesOf(int64_t parts) {
  return static_cast<size_t>(parts) * sizeof(LossSum);
}

// Stores the sum of the losses of all parts, or their mean: the sum divided by
// the sum of the weights. Nothing if nobody reads `out`.
void FinishLoss(const KernelContext& ctx, const LossSum* parts, int64_t count,
                bool mean, FloatsOut out);

}  // namespace onnx_fp8::cuda
