// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "graph/graph.h"

namespace onnx_fp8 {

// A node's note: the most bytes of its workspace, as text.
inline constexpr char kMostWorkspace[] = "most_workspace";

// The bytes of the node's note, or `otherwise`, if that is less or there is no
// such note. (A file may give its nodes any notes.)
size_t MostWorkspaceOf(const Node& node, size_t otherwise);

}  // namespace onnx_fp8
