// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// The statistics by which BatchNormalization normalizes in training. Evaluation
// always uses the running statistics.
enum class BatchNormMode {
  kAsExported,  // as the node's training_mode says
  kTrain,       // the batch's statistics; the running ones follow them
  kEval,        // the running statistics, which stay as they are
};

}  // namespace onnx_fp8
