// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "graph/op_facts.h"

namespace onnx_fp8 {

bool IsViewOp(const Node& node) {
  switch (FactsOf(node).form) {
    case OpForm::kCopy:
    case OpForm::kConvert:
    case OpForm::kReshape:
    case OpForm::kTranspose:
    case OpForm::kSlice:
    case OpForm::kSplit:
    case OpForm::kConcat:
      return true;
    default:
      return false;
  }
}

size_t MovedOperands(const Node& view) {
  const size_t all = view.inputs().size();
  return FactsOf(view).form == OpForm::kConcat ? all : std::min<size_t>(1, all);
}

bool SharesMemory(const Node& node) {
  const OpForm form = FactsOf(node).form;
  return (form == OpForm::kReshape || form == OpForm::kCopy) && node.in(0) &&
         node.out(0) && !node.out(1);
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
    if (FactsOf(*node).form != OpForm::kConcat) {
      open.push_back(node->in(0));
    } else if (seen.insert(value).second) {
      const auto& in = node->inputs();
      open.insert(open.end(), in.rbegin(), in.rend());
    }
  }
  return nullptr;
}

const Value* BehindCopies(const Value* value) {
  while (value->producer && FactsOf(*value->producer).form == OpForm::kCopy &&
         value->producer->in(0)) {
    value = value->producer->in(0);
  }
  return value;
}

Value* BehindCopies(Value* value) {
  return const_cast<Value*>(BehindCopies(static_cast<const Value*>(value)));
}

Matrix PeelTranspose(Value* value) {
  Matrix matrix{value};
  while (value->producer &&
         FactsOf(*value->producer).form == OpForm::kTranspose && value->shape &&
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
