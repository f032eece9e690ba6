// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <algorithm>
#include <set>
#include <unordered_set>

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

bool IsReturned(const Graph& graph, const Value* value) {
  return std::ranges::find(graph.outputs, value) != graph.outputs.end() ||
         std::ranges::any_of(graph.state, [&](const StateBinding& binding) {
           return binding.next == value;
         });
}

std::unordered_set<const Value*> NewState(const Graph& graph) {
  std::unordered_set<const Value*> values;
  for (const StateBinding& binding : graph.state) values.insert(binding.next);
  return values;
}

bool IsViewOp(const Node& node) {
  static const std::set<std::string, std::less<>> kViews = {
      "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast",
      "Identity",  "Flatten", "Slice",   "Split",     "Concat"};
  return (node.domain.empty() && kViews.contains(node.op)) ||
         node.IsOurs("RoundTo");
}

Value* WeightBehind(Value* value) {
  std::vector<Value*> open = {value};
  // Operands of a Concat may be parts of each other, many times over.
  std::unordered_set<const Value*> seen;
  while (!open.empty()) {
    value = open.back();
    open.pop_back();
    if (!value) continue;
    if (value->role == Role::kParameter || value->role == Role::kFrozen) {
      return value;
    }
    Node* node = value->producer;
    if (!node || !IsViewOp(*node)) continue;
    if (node->op != "Concat") {
      open.push_back(node->in(0));
    } else if (seen.insert(value).second) {
      const auto& in = node->inputs();
      open.insert(open.end(), in.rbegin(), in.rend());
    }
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
