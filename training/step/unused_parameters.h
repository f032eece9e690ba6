// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Names of the trained parameters on which none of the outputs depends
// smoothly: a step gives them no gradient and leaves them as they are. Call it
// on a model as it is imported; bodies of If, Loop and Scan count as a whole.
std::set<std::string> UnusedParameters(const Graph& graph,
                                       const std::vector<std::string>& outputs);

}  // namespace onnx_fp8
