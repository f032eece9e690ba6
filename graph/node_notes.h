// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// "MatMul", "onnx_fp8.ScaledMatMul".
std::string OpName(const Node& node);

// A note that passes leave on nodes ("role", "fqn", "operand"): a text
// attribute or an entry of the metadata; "" if there is none.
std::string NodeNote(const Node& node, const std::string& key);

}  // namespace onnx_fp8
