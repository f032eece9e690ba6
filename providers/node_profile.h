// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"
#include "onnx_fp8/profile_report.h"

namespace onnx_fp8 {

// The type of the node's first result, or of a larger one; "": it has none.
std::string ShapeOf(const Node& node);

// The node's purpose, as in NodeProfile::role.
std::string RoleOf(const Node& node);

// Describes the node and the cost of one run. Its time is 0.
NodeProfile DescribeNode(const Node& node);

}  // namespace onnx_fp8
