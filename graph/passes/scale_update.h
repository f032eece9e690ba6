// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "graph/passes/fp8_rewrite.h"

namespace onnx_fp8 {

// Adds the one UpdateScale node that moves all delayed scales, and binds
// history and scale to its results. `amax` is the vector of this step's amaxes
// in slot order, `ok` (bool, rank 0) is false if the step is skipped.
// REQUIRES: plan.slots not empty.
void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok);

// The amaxes of all slots as one vector (N), in slot order.
Value* StackAmaxes(Graph& graph, const std::vector<Value*>& amaxes);

}  // namespace onnx_fp8
