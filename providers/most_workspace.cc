// SPDX-License-Identifier: Apache-2.0
#include "providers/most_workspace.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "graph/node_notes.h"

namespace onnx_fp8 {

size_t MostWorkspaceOf(const Node& node, size_t otherwise) {
  const std::string note = NodeNote(node, kMostWorkspace);
  const char* end = note.data() + note.size();
  size_t bytes = 0;
  const auto [stop, error] = std::from_chars(note.data(), end, bytes);
  const bool is_number = error == std::errc() && stop == end;
  return is_number ? std::min(otherwise, bytes) : otherwise;
}

}  // namespace onnx_fp8
