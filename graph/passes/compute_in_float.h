// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Lets a model that was exported in float16 or bfloat16 compute in float:
// inputs, initializers, attributes and casts, subgraphs included. Training
// keeps its parameters in float; export converts back to the file's types.
void ComputeInFloat(Graph& graph);

}  // namespace onnx_fp8
