// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Every node of `graph` and of its subgraphs against its operator's schema:
// numbers of inputs and outputs, kinds of attributes. What follows may rely on
// it. Operators of unknown domains pass here and are refused where they are
// met.
void CheckNodes(const onnx::GraphProto& graph, int opset,
                const std::string& path);

// That the model's local functions can be inlined: none calls itself, and what
// they come to has a size. The inliner checks neither.
void CheckFunctions(const onnx::ModelProto& model, const std::string& path);

}  // namespace onnx_fp8
