// SPDX-License-Identifier: Apache-2.0
// The number of multiplications and additions of nodes, for the rows of
// op_facts.cc; 0 if shapes are not known.
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

double ProductFlops(const Node& node);
double ConvFlops(const Node& node);
double QuantizedConvFlops(const Node& node);
double ConvTransposeFlops(const Node& node);
double EinsumFlops(const Node& node);
double RecurrentFlops(const Node& node);
double WindowFlops(const Node& node);
double AttentionFlops(const Node& node);
double AttentionGradFlops(const Node& node);
// One operation per element of the largest operand or result.
double ElementFlops(const Node& node);

}  // namespace onnx_fp8
