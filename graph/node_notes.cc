// SPDX-License-Identifier: Apache-2.0
#include "graph/node_notes.h"

#include <algorithm>
#include <vector>

namespace onnx_fp8 {
namespace {

// The entries of a Python list of strings: "['', 'model', 'model.norm']".
std::vector<std::string> ParseList(const std::string& text) {
  std::vector<std::string> items;
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos;) {
    size_t end = text.find('\'', at + 1);
    if (end == std::string::npos) break;
    items.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return items;
}

}  // namespace

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

std::string ModulePath(const Node& node) {
  auto scopes = node.metadata.find("pkg.torch.onnx.name_scopes");
  if (scopes != node.metadata.end()) {
    // The last entry names the op itself.
    std::vector<std::string> items = ParseList(scopes->second);
    if (items.size() >= 2) return items[items.size() - 2];
    return "";
  }
  const std::string& name = node.name;
  if (name.empty() || name[0] != '/') return "";
  size_t last = name.rfind('/');
  if (last == 0) return "";
  std::string path = name.substr(1, last - 1);
  std::ranges::replace(path, '/', '.');
  return path;
}

}  // namespace onnx_fp8
