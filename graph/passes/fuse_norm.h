// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// x / sqrt(mean(x²) + ε) · w over the last axis, as exporters write it out,
// becomes our RMSNorm. If a norm (this or LayerNormalization) reads a sum that
// other nodes read too, the residual stream, both become AddRMSNorm or
// AddLayerNorm, which returns the sum and the norm. If other nodes read a value
// in between, nothing is fused. Results differ by the rounding of the parts.
// REQUIRES: concrete shapes.
void FuseNorms(Graph& graph);

}  // namespace onnx_fp8
