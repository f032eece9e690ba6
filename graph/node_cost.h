// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// The least cost of running a node once; 0 if shapes are not known.
struct NodeCost {
  // Multiplications and additions of matrix products, Einsum, attention,
  // convolutions, recurrent layers and windows; of every other op one per
  // element of its largest operand or result.
  double flops = 0;
  double bytes = 0;  // all operands and results as they are kept, each once
};

NodeCost CostOf(const Node& node);

}  // namespace onnx_fp8
