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

// The weight of the batch in a mean over batches: CountedLabels of loss.h.
double WeightOfLabels(const LossSpec& loss, const Tensor& output,
                      const Tensor& label, const Evaluator& evaluator);

// The number of labels that the loss counts: of a loss of classes, the samples
// that are not ignored, else all elements.
int64_t CountLabels(const LossSpec& loss, const Tensor& output,
                    const Tensor& label);

// The number of counted labels for which the output is right. REQUIRES: a kind
// with hits.
int64_t CountHits(const LossSpec& loss, const Tensor& output,
                  const Tensor& label, const Evaluator& evaluator);

// Whether each token has a label: classes along the last axis of logits with
// more axes than samples and classes. REQUIRES: a kind of the table.
bool HasTokens(const LossSpec& loss, const Tensor& output, const Tensor& label);

}  // namespace onnx_fp8
