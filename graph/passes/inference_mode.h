// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Dropout passes its input on.
void DropNothing(Graph& graph);

// So does one whose constants say that it drops nothing.
void RemoveIdleDropout(Graph& graph);

// Puts a node that normalises by the running statistics, and gives nothing
// else, in the place of a BatchNormalization in training mode.
void NormaliseByStatistics(Graph& graph, Node* node);

// Turns what an export in training mode does in training only off: Dropout
// passes its input on, BatchNormalization uses its running statistics.
void InferenceMode(Graph& graph);

}  // namespace onnx_fp8
