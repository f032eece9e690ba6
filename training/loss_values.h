// SPDX-License-Identifier: Apache-2.0
// Runs the graphs of the table of losses on the results of a batch, for numbers
// that the graph of the step does not give.
#pragma once

#include <cstdint>

#include "graph/evaluator.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The loss of `output` and `label` by AddLoss's graph. REQUIRES: a kind of the
// table. Errors: AddLoss's; labels that are not classes.
double LossOf(const LossSpec& loss, const Tensor& output, const Tensor& label,
              const Evaluator& evaluator);

// The number of labels over which the loss is a mean.
int64_t CountLabels(const LossSpec& loss, const Tensor& label);

// The number of counted labels for which the output is right. REQUIRES: a kind
// with hits.
int64_t CountHits(const LossSpec& loss, const Tensor& output,
                  const Tensor& label, const Evaluator& evaluator);

}  // namespace onnx_fp8
