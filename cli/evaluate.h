// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/data.h"
#include "onnx_fp8/session.h"
#include "training/dataset.h"

namespace onnx_fp8 {

struct Evaluation {
  double loss = 0;  // mean over all that counts, in any batches
  int64_t samples = 0;
  int64_t tokens = 0;  // labels that count; for models of sequences
  // Classification: cross_entropy with one label per sample, bce_with_logits.
  std::optional<double> accuracy;
  // exp(loss); cross_entropy with a label per token.
  std::optional<double> perplexity;
  bool complete = true;  // false: `stop` ended it
};

// Loss over one pass through `data`. loss.logits names the output that the loss
// reads. If the model has a fixed batch size, a last partial batch is filled
// with copies of its last sample, which do not count. (If the model computes
// its own loss, such a batch is left out, with a note on stderr.) `stop` is
// asked before each batch.
Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout, const LossSpec& loss,
                    const std::function<bool()>& stop = {});

// Mean loss over the first `rows` samples of a batch, and the number of
// elements over which it is a mean.
struct LossSum {
  double sum = 0;
  int64_t count = 0;
};
LossSum LossOfRows(const LossSpec& loss, const Tensor& output,
                   const Tensor& label, int64_t rows);

// How many labels of the first `rows` samples count, and for how many of them
// the output is right: its largest class, or its sign.
struct Hits {
  int64_t right = 0;
  int64_t count = 0;
};
Hits CountHits(const LossSpec& loss, const Tensor& output, const Tensor& label,
               int64_t rows);

}  // namespace onnx_fp8
