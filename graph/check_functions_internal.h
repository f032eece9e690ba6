// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

namespace onnx = ONNX_NAMESPACE;

// That the model's local functions can be inlined, which ONNX's inliner takes
// on trust: each has a domain other than ONNX's and a name of its own in it
// (domain, name and overload); what its nodes read is an input or computed
// before, and its outputs are computed; calls pass no more than is declared;
// none calls itself, and what they come to stays within the budget `nodes` and
// has a depth. Every node is checked as CheckNodes does, for the opset that the
// function imports.
void CheckFunctions(const onnx::ModelProto& model, const std::string& path,
                    const Budgets& budgets);

}  // namespace onnx_fp8
