// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// Checks that the model's local functions can be inlined; ONNX's inliner takes
// this on trust. Each function has a domain other than ONNX's and is unique in
// it (by domain, name and overload). Its nodes read only inputs and values that
// were computed before, and its outputs are computed. Calls pass no more
// operands than are declared. No function calls itself. Inlined, they stay
// within the budget `nodes` and a limit of depth. Every node is checked as
// CheckNodes does, for the opset that the function imports.
void CheckFunctions(const onnx::ModelProto& model, const std::string& path,
                    const Budgets& budgets);

}  // namespace onnx_fp8
