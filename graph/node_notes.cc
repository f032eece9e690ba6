// SPDX-License-Identifier: Apache-2.0
#include "graph/node_notes.h"

#include <algorithm>
#include <vector>

namespace onnx_fp8 {
namespace {

constexpr char kNameScopes[] = "pkg.torch.onnx.name_scopes";

// The strings of a Python list of strings, "['', 'blocks.0', 'linear']".
std::vector<std::string> PythonStrings(const std::string& text) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < text.size(); ++i) {
    char quote = text[i];
    if (quote != '\'' && quote != '"') continue;
    std::string item;
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      item += text[i];
    }
    strings.push_back(std::move(item));
  }
  return strings;
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

std::vector<std::string> NameScopes(const Node& node) {
  auto scopes = node.metadata.find(kNameScopes);
  return scopes == node.metadata.end() ? std::vector<std::string>()
                                       : PythonStrings(scopes->second);
}

std::string ModulePath(const Node& node) {
  if (node.metadata.contains(kNameScopes)) {
    // The last entry names the op itself.
    std::vector<std::string> scopes = NameScopes(node);
    return scopes.size() >= 2 ? scopes[scopes.size() - 2] : "";
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
