// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// x / sqrt(mean(x²) + ε) · w over the last axis, as exporters write it out,
// becomes our RMSNorm; it and LayerNormalization of a sum that others read too,
// the residual stream, become AddRMSNorm and AddLayerNorm, which make both.
// Other uses of what lies between leave it as it is. Results differ by rounding
// of the parts. REQUIRES: concrete shapes.
void FuseNorms(Graph& graph);

}  // namespace onnx_fp8
