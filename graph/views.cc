// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <algorithm>
#include <set>

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

bool IsViewOp(const Node& node) {
  static const std::set<std::string, std::less<>> kViews = {
      "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast",
      "Identity",  "Flatten", "Slice",   "Split",     "Concat"};
  return node.domain.empty() && kViews.contains(node.op);
}

Value* WeightBehind(Value* value) {
  while (value) {
    if (value->role == Role::kParameter || value->role == Role::kFrozen) {
      return value;
    }
    Node* node = value->producer;
    if (!node || !IsViewOp(*node)) return nullptr;
    if (node->op == "Concat") {
      for (Value* part : node->inputs()) {
        if (Value* weight = WeightBehind(part)) return weight;
      }
      return nullptr;
    }
    value = node->in(0);
  }
  return nullptr;
}

Matrix PeelTranspose(Value* value) {
  Matrix matrix{value};
  while (value->producer && value->producer->Is("Transpose") && value->shape &&
         value->rank() == 2) {
    auto perm = value->producer->Ints("perm", {1, 0});
    if (perm == std::vector<int64_t>{1, 0}) {
      matrix.transposed = !matrix.transposed;
    }
    value = value->producer->in(0);
    matrix.value = value;
  }
  return matrix;
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
