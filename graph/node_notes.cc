// SPDX-License-Identifier: Apache-2.0
#include "graph/node_notes.h"

namespace onnx_fp8 {

std::string OpName(const Node& node) {
  return node.domain.empty() ? node.op : node.domain + "." + node.op;
}

std::string NodeNote(const Node& node, const std::string& key) {
  auto attribute = node.attributes.find(key);
  if (attribute != node.attributes.end()) {
    if (auto* text = std::get_if<std::string>(&attribute->second)) return *text;
  }
  auto entry = node.metadata.find(key);
  return entry == node.metadata.end() ? "" : entry->second;
}

}  // namespace onnx_fp8
