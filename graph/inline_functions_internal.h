// SPDX-License-Identifier: Apache-2.0
//
// Local functions become plain nodes. Internal to graph/.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <utility>

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

using FunctionName = std::pair<std::string, std::string>;  // domain, name

// Inlines the local functions of `chosen`, or all of them. A node of a function
// that imports another ONNX opset than the model keeps that opset as a note
// (OpsetOf), from which Upgrade brings it to the newest form: ONNX's own
// conversion runs shape inference over the whole model first, before its sizes
// are checked. REQUIRES: CheckFunctions passed; what calls a chosen function is
// chosen. Errors: `path` names the model.
void InlineFunctions(onnx::ModelProto* model, const std::string& path);
void InlineFunctions(onnx::ModelProto* model, const std::string& path,
                     const std::set<FunctionName>& chosen);

}  // namespace onnx_fp8
