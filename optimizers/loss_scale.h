// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "onnx_fp8/loss_scaling.h"

namespace onnx_fp8 {

// The state of dynamic loss scaling.
struct LossScale {
  Value* scale = nullptr;   // float, rank 0
  Value* growth = nullptr;  // int64, rank 0: good steps since the last change
};

// Adds the state to a graph that updates parameters, and the update of
// torch.amp.GradScaler. After a good step (`ok`) growth counts one more; at
// `interval` the scale is multiplied by `growth`, unless the result is
// infinite, and the count starts again. After a bad step the scale is
// multiplied by `backoff`, and the count starts again.
void UpdateLossScale(Graph& graph, const LossScale& state,
                     const LossScaling& how, Value* ok);

// Errors: Error that names the setting: an initial scale that is not positive
// and finite, growth below 1, backoff outside of (0, 1], an interval below 1.
void CheckLossScaling(const LossScaling& how);

}  // namespace onnx_fp8
