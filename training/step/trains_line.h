// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/passes/trained_parameters.h"

namespace onnx_fp8 {

// "trains 62 of 62 parameters, 11,178,884 numbers (from the file's own list);
// not trained: 40 statistics". `unused`: parameters that the loss does not
// reach.
std::string TrainsLine(const std::vector<InitializerReport>& tensors,
                       const std::set<std::string>& unused);

// The line of a training step in a file, whose state names its parameters.
std::string TrainsLineOfStep(const Graph& step);

}  // namespace onnx_fp8
