// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// What BatchNormalization normalises by in training. Evaluation uses the
// running statistics in any case.
enum class BatchNormMode {
  kAsExported,  // what the node's training_mode says
  kTrain,       // the batch's statistics; the running ones follow them
  kEval,        // the running statistics, which stay as they are
};

}  // namespace onnx_fp8
