// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Binds running mean and variance of every BatchNormalization in training mode
// to their updated values: they are state like any other. They stay as they are
// if `ok` (bool, rank 0) is false. The variance moves as in PyTorch, by the
// batch's unbiased variance, where ONNX's op takes the population's. A layer
// that runs twice moves its statistics twice; a layer in a branch that is not
// taken leaves them (graph/needed_when.h). REQUIRES: concrete shapes; outputs
// and state of the graph are final.
void BindRunningStatistics(Graph& graph, Value* ok);

}  // namespace onnx_fp8
