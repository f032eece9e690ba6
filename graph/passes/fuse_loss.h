// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// SoftmaxCrossEntropyLoss of scores (N,C), the mean without weights, becomes
// our CrossEntropy, which keeps one number per sample for the backward instead
// of all logarithms. Those whose logarithms something reads stay.
void FuseLoss(Graph& graph);

}  // namespace onnx_fp8
