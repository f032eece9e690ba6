// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// x cos + (-x2, x1) sin, where x1 and x2 are the halves of x's last axis, as
// exporters write it for heads (B,H,T,D) or (B,T,H,D), becomes our Rotary over
// heads that lie beside each other (graph/schemas/rotary.cc), so that
// Transposes around it vanish. cos and sin broadcast over heads and depend on
// nothing that is trained. REQUIRES: concrete shapes.
void FuseRotary(Graph& graph);

}  // namespace onnx_fp8
