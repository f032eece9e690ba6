// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/bench/layer_model.h"
#include "cli/bench/sizes.h"
#include "cli/bench/timing.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// `options` without FP8 in any layer.
SessionOptions HighPrecision(SessionOptions options);

// Times the forward and the backward of one layer, by turns: first in high
// precision, then as `options` say. The backward computes the gradients of
// input and weight. On a GPU all operands and gradients stay there. `after` is
// called after each pair of runs. Errors: TrainingSession's.
RivalTimes TimeLayer(Surroundings surroundings, const ProductSize& size,
                     const SessionOptions& options, double seconds,
                     const std::function<void()>& after);

}  // namespace onnx_fp8
