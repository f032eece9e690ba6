// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Removes nodes that reach no graph output and no state, and constants that
// nothing reads. Inputs, parameters and state stay.
void RemoveDeadCode(Graph& graph);

}  // namespace onnx_fp8
