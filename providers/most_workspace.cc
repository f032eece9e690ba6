// SPDX-License-Identifier: Apache-2.0
#include "providers/most_workspace.h"

#include <algorithm>
#include <string>

#include "graph/node_notes.h"

namespace onnx_fp8 {

size_t MostWorkspaceOf(const Node& node, size_t otherwise) {
  const std::string note = NodeNote(node, kMostWorkspace);
  return note.empty() ? otherwise
                      : std::min<size_t>(otherwise, std::stoull(note));
}

}  // namespace onnx_fp8
