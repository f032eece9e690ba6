// SPDX-License-Identifier: Apache-2.0
//
// Operators of ONNX Runtime and of its training graphs (domain com.microsoft).
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace onnx_fp8 {

inline constexpr char kOrtDomain[] = "com.microsoft";

// Replaces each operator that has a row by operators of ONNX and our own with
// the same meaning, as ONNX Runtime 1.19.2 computes it; values keep their
// names. The others stay. Infers types on the way where it can. REQUIRES: nodes
// of ONNX in their normal form. Errors: an operand or attribute that the row
// does not cover, naming the node.
void ImportOrtOps(Graph& graph);

// The same for one node. REQUIRES: it has a row; its operands' types are known.
void ImportOrtOp(Graph& graph, Node* node);

}  // namespace onnx_fp8
