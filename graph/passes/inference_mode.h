// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Makes every Dropout pass its input on.
void DropNothing(Graph& graph);

// The same for a Dropout whose constants say that it drops nothing.
void RemoveIdleDropout(Graph& graph);

// Replaces a BatchNormalization in training mode by a node that normalizes by
// the running statistics and has no other outputs.
void NormalizeByStatistics(Graph& graph, Node* node);

// Turns off what an export in training mode does only in training: Dropout
// passes its input on, BatchNormalization uses its running statistics.
void InferenceMode(Graph& graph);

}  // namespace onnx_fp8
