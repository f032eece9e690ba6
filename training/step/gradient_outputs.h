// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "training/step/step_graph.h"

namespace onnx_fp8 {

// Makes graph outputs of gradients, each given with the parameter or input that
// it belongs to. `loss_scale`: the factor that all gradients have, which is
// divided out; null: none.
void AddGradientOutputs(const std::vector<std::pair<Value*, Value*>>& pairs,
                        Value* loss_scale, StepGraph* step);

}  // namespace onnx_fp8
