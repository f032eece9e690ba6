// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// Sets dtype and shape of the node's outputs from those of its inputs and from
// the content of inputs that are initializers, by the operator schema's own
// inference at opset `opset` of the ONNX domain. What the schema can't tell
// stays as it is. Errors: an operator without schema, operands that do not fit.
void InferNode(Node& node, int opset);

}  // namespace onnx_fp8
