// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "graph/weight_uses.h"
#include "onnx_fp8/optimizer_spec.h"

namespace onnx_fp8 {

// The uses of the model's parameters if spec.decay asks for them; else none.
std::map<std::string, WeightUse> UsesThatDecide(const OptimizerSpec& spec,
                                                const Graph& model);

// Which of the model's trained tensors do not decay, where spec.decay decides
// it: "`decay=matrices`: 2 of 4 trained tensors do not decay: fc.bias,
// out.bias"; with "layers" it counts them by use: "do not decay (2 biases): …".
// "": it decides nothing.
std::string DecayNote(const OptimizerSpec& spec, const Graph& model,
                      const ParameterNames& names);

}  // namespace onnx_fp8
