// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Appends the loss to a forward graph of concrete shapes; kinds and shapes as
// LossSpec says. Adds the label as a graph input. Returns the loss: float, rank
// 0, named `loss` where that name is free. Errors: another kind, an output that
// is not there (the message lists what is), a label name that is taken.
Value* AddLoss(Graph& graph, const LossSpec& spec);

}  // namespace onnx_fp8
