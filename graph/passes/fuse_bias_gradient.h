// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// The gradient of a GELU or SiLU and its sum over all rows (the gradient of the
// bias added before) become one op (GeluBiasGrad and its like). Values keep
// their identity. REQUIRES: concrete shapes. For graphs with a backward.
void FuseBiasGradients(Graph& graph);

}  // namespace onnx_fp8
