// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "onnx_fp8/loss_scaling.h"

namespace onnx_fp8 {

// The state of dynamic loss scaling: two initializers of the graph.
struct LossScale {
  Value* scale = nullptr;       // float, rank 0
  Value* good_steps = nullptr;  // int64, rank 0: since the scale changed
};

// Binds the next values of the state, by the rule of torch.amp.GradScaler. `ok`
// is a bool: whether all gradients of the step are finite.
//   - ok: good_steps grows by 1. If it reaches how.interval, the scale is
//     multiplied by how.growth, unless the product is infinite, and good_steps
//     becomes 0.
//   - not ok: the scale is multiplied by how.backoff, and good_steps becomes 0.
void UpdateLossScale(Graph& graph, const LossScale& state,
                     const LossScaling& how, Value* ok);

// Errors, which name the setting: `init` is not positive or not finite;
// `growth` is below 1; `backoff` is not in (0, 1]; `interval` is below 1.
void CheckLossScaling(const LossScaling& how);

}  // namespace onnx_fp8
