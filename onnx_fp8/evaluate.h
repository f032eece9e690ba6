// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

struct Evaluation {
  double loss = 0;  // mean over all that counts, whatever the batches
  int64_t samples = 0;
  int64_t tokens = 0;  // labels that count, of models of sequences
  // Classification, 0 … 1: cross_entropy with one label a sample,
  // bce_with_logits.
  std::optional<double> accuracy;
  // exp(loss); cross_entropy with a label per token.
  std::optional<double> perplexity;
  bool complete = true;  // false: `stop` ended it
  std::string remark;    // what was left out, for people; "" if nothing was
};

// Loss of the session's model over one pass through `data`, which `layout` was
// made for. A last partial batch that a model of fixed batch size can't take
// is filled up with copies of its last sample, which do not count (where the
// model computes its own loss, such a batch is left out, with a remark). `stop`
// is asked before each batch. Errors: TrainingSession::Eval's; a label that is
// no class.
Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout,
                    const std::function<bool()>& stop = {});

// Mean loss over the first `rows` samples of a batch, and what it is a mean
// over.
struct LossSum {
  double sum = 0;
  int64_t count = 0;
};
LossSum LossOfRows(const LossSpec& loss, const Tensor& output,
                   const Tensor& label, int64_t rows);

// How many of the first `rows` samples' labels count, and how many of those
// the output has right: its largest class, or its sign.
struct Hits {
  int64_t right = 0;
  int64_t count = 0;
};
Hits CountHits(const LossSpec& loss, const Tensor& output, const Tensor& label,
               int64_t rows);

}  // namespace onnx_fp8
