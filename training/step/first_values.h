// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/onnx/initialization.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Gives initializers of `graph` the values that the initializations of its file
// compute. Random numbers depend on options.seed. Errors: a binding of
// something that is no initializer, or of another type or shape; errors of the
// ops.
void SetFirstValues(const std::vector<Initialization>& initializations,
                    const SessionOptions& options, Graph* graph);

}  // namespace onnx_fp8
