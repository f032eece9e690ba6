// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// SoftmaxCrossEntropyLoss of scores (N,C), the mean without weights, becomes
// our CrossEntropy. That op keeps one number per sample for the backward
// instead of all logarithms. A loss whose logarithms something reads stays.
void FuseLoss(Graph& graph);

}  // namespace onnx_fp8
