// SPDX-License-Identifier: Apache-2.0
//
// Exponential moving averages of trained weights, OptimizerSpec::ema.
#pragma once

#include <vector>

#include "graph/builder.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {

// The average of a parameter is state with the parameter's name and this end.
inline constexpr char kEma[] = ".ema";

// The state that counts the updates that have moved averages. While it is 0,
// averages hold nothing.
inline constexpr char kAveraged[] = "optimizer.averaged";

// Adds the averages of these parameters behind their updates, and nothing if
// spec.ema is 0. `step`: the number of the update, from 1; `ok`: whether it is
// done. REQUIRES: the parameters are bound.
void AppendAverages(Builder& b,
                    const std::vector<ParameterGradient>& parameters,
                    const OptimizerSpec& spec, const StateNames& names,
                    Value* step, Value* ok);

}  // namespace onnx_fp8
