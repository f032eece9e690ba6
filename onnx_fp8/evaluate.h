// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/stats_spec.h"

namespace onnx_fp8 {

struct Evaluation {
  double loss = 0;  // mean over all that counts, in any batches
  int64_t samples = 0;
  int64_t tokens = 0;  // labels that count; for models of sequences
  // 0 … 1, for losses that tell right from wrong; where there is a perplexity,
  // only if SessionOptions::metrics asks for it.
  std::optional<double> accuracy;
  // exp(loss), for a likelihood with one label per token, or if `metrics` asks.
  std::optional<double> perplexity;
  // Numbers of the caller's own about the outputs, by name.
  std::map<std::string, double> measures;
  bool complete = true;      // false: `stop` ended it
  std::string remark;        // a note on omitted samples; "" if there are none
  std::string cause;         // EvalResult's, of the first batch that has one
  bool of_averages = false;  // as EvalResult's
  // Statistics of casts to FP8, joined over the batches that measure them.
  std::vector<MeasuredCast> casts = {};
};

// Gets the model's outputs for each batch, and the label; null: the batch has
// none.
using OutputObserver =
    std::function<void(const TensorMap& outputs, const Tensor* label)>;

// Loss of the session's model over one pass through `data`; `layout` is the
// layout of `data`. If the model has a fixed batch size, a last partial batch
// is filled with copies of its last sample, and a graph of the loss alone
// counts only the real samples. (If the model computes its own loss, such a
// batch is left out, with a remark.) `stop` is asked before each batch;
// `observer` may be empty. `stats`: batches that measure their casts, counted
// from 1; copies that fill a batch count. Errors: TrainingSession::Eval's.
Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout,
                    const std::function<bool()>& stop = {},
                    const OutputObserver& observer = {},
                    const StatsSpec& stats = {});

// Plans the first batch that Evaluate would run and runs nothing. Batches that
// a caller makes (BatchSource) may come once, so these are not asked for.
// Errors: TrainingSession::PrepareEval's.
void PrepareEvaluation(TrainingSession& session, const Dataset& data,
                       const DataLayout& layout);

}  // namespace onnx_fp8
