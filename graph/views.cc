// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <set>
#include <unordered_set>
#include <vector>

namespace onnx_fp8 {
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

}  // namespace onnx_fp8
