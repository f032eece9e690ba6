// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "collectives/mesh.h"
#include "graph/graph.h"
#include "training/split_region.h"

namespace onnx_fp8 {

// A tensor of which the ranks of the axis tp have parts (split_layers.h) gets
// the scale of the whole tensor: QuantizeTensor of a part becomes Amax, a
// maximum over the ranks and QuantizeAmax. The maximum of all weights is one
// all-reduce before everything else. A tensor is in parts if it depends on
// parts of `initializers` and is no result of a collective over tp. Quantizers
// with a scale per row, column or block keep the scales of the part. So does
// QuantizeWith for an activation in the first step, when there is no scale yet.
void ShareAmaxes(Graph& graph, const Mesh& mesh,
                 const std::map<std::string, AxisSplit>& initializers);

}  // namespace onnx_fp8
