// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Sets dtype and shape of the node's outputs from the dtypes and shapes of its
// inputs, and from the content of initializers among them. Uses the inference
// of the operator's schema at opset `opset` of the ONNX domain. Facts that the
// schema can't tell stay as they are. Errors: an operator without schema,
// operands that do not fit.
void InferNode(Node& node, int opset);

}  // namespace onnx_fp8
