// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Binds running mean and variance of every BatchNormalization in training mode
// to their updated values: they are state like any other. They stay as they are
// where `ok` (bool, rank 0) is false. The variance moves as PyTorch's does, by
// the batch's unbiased variance, where ONNX's op has the population's. A layer
// that runs twice moves its statistics twice, one in a branch that is not taken
// leaves them (graph/needed_when.h). REQUIRES: concrete shapes; the graph's
// outputs and state as they will be.
void BindRunningStatistics(Graph& graph, Value* ok);

}  // namespace onnx_fp8
