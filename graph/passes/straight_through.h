// SPDX-License-Identifier: Apache-2.0
//
// Models of quantization-aware training round values to codes and back:
// QuantizeLinear, then DequantizeLinear. Rounding has no gradient; PyTorch's
// fake quantization takes the one of y = x within the range of the codes, and
// none outside of it.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Puts StraightThrough (graph/schemas/straight_through.cc) behind each pair of
// QuantizeLinear and DequantizeLinear with one scale, zero point and axis. A
// Clip of the codes between them narrows the range. Scales stay fixed.
// REQUIRES: concrete shapes.
void AddStraightThrough(Graph& graph);

// Readers of a StraightThrough read its first operand, after the backward is
// built.
void RemoveStraightThrough(Graph& graph);

// Floats that become codes which are not turned back in this way, so that no
// gradient passes: the places of these QuantizeLinears, for people. Shapes may
// be unknown.
std::vector<std::string> RoundedForGood(const Graph& graph);

}  // namespace onnx_fp8
