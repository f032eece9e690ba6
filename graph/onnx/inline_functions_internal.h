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

// Inlines the local functions of `chosen`, or all of them. If a function
// imports another ONNX opset than the model, its nodes keep that opset as a
// note (OpsetOf), and Upgrade later brings them to the newest form. (ONNX's own
// conversion would first run shape inference over the whole model, before its
// sizes are checked.) REQUIRES: CheckFunctions passed; every caller of a chosen
// function is chosen. Errors: `path` names the model.
void InlineFunctions(onnx::ModelProto* model, const std::string& path);
void InlineFunctions(onnx::ModelProto* model, const std::string& path,
                     const std::set<FunctionName>& chosen);

}  // namespace onnx_fp8
