// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "graph/graph.h"

namespace onnx_fp8 {

// Notes at each gradient of attention that its workspace has at most these
// bytes (providers/most_workspace.h). A kernel that works in equal parts makes
// more of them then, and its results keep their bits; other kernels do not read
// the note.
void BoundWorkspaces(Graph& graph, size_t bytes);

}  // namespace onnx_fp8
