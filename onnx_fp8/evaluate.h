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
  double loss = 0;  // mean over all that counts, in any batches
  int64_t samples = 0;
  int64_t tokens = 0;  // labels that count; for models of sequences
  // 0 … 1, of losses that can be right or wrong, but for those with a
  // perplexity.
  std::optional<double> accuracy;
  // exp(loss), of a likelihood with a label per token.
  std::optional<double> perplexity;
  bool complete = true;  // false: `stop` ended it
  std::string
      remark;  // samples that were left out, for people; "" if nothing was
};

// Loss of the session's model over one pass through `data`, which `layout` was
// made for. If the model has a fixed batch size, a last partial batch is filled
// with copies of its last sample, and a graph of the loss alone takes the
// samples that count. (If the model computes its own loss, such a batch is left
// out, with a remark.) `stop` is asked before each batch. Errors:
// TrainingSession::Eval's.
Evaluation Evaluate(TrainingSession& session, const Dataset& data,
                    const DataLayout& layout,
                    const std::function<bool()>& stop = {});

}  // namespace onnx_fp8
