// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Binds running mean and variance of every BatchNormalization in training mode
// to the node's updated ones: they are state like any other. They stay as they
// are where `ok` (bool, rank 0) is false.
void BindRunningStatistics(Graph& graph, Value* ok);

}  // namespace onnx_fp8
