// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"
#include "graph/parameter_names.h"
#include "onnx_fp8/optimizer_spec.h"

namespace onnx_fp8 {

// Which of the model's trained tensors do not decay, where spec.decay decides
// it: "`decay=matrices`: 2 of 4 trained tensors do not decay: fc.bias,
// out.bias". "": it decides nothing.
std::string DecayNote(const OptimizerSpec& spec, const Graph& model,
                      const ParameterNames& names);

}  // namespace onnx_fp8
