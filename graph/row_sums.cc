// SPDX-License-Identifier: Apache-2.0
#include "graph/row_sums.h"

#include <vector>

#include "graph/constants.h"

namespace onnx_fp8 {
namespace {

// Whether the node sums its operand over all axes but the last.
bool SumsRows(const Node& node) {
  const Value* axes = node.in(1);
  if (!node.Is("ReduceSum") || !axes || !axes->is_constant()) return false;
  int64_t rank = node.in(0)->rank();
  std::vector<int64_t> all = ToInts(axes->data);
  if (all.empty()) return false;  // then it sums all elements, or none
  std::vector<bool> summed(static_cast<size_t>(rank), false);
  for (int64_t axis : all) {
    summed[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  std::vector<bool> all_but_last(summed.size(), true);
  all_but_last.back() = false;
  return summed == all_but_last;
}

}  // namespace

Node* SumOfRows(const Value* x) {
  const int64_t columns = x->dim(-1);
  while (x->producer && x->producer->Is("Reshape")) x = x->producer->in(0);
  // All values with x's elements in x's order.
  std::vector<const Value*> open = {x};
  while (!open.empty()) {
    x = open.back();
    open.pop_back();
    if (!x->concrete()) continue;
    bool rows = x->rank() > 0 && x->dim(-1) == columns;
    for (Node* reader : x->uses) {
      if (reader->in(0) != x) continue;
      if (reader->Is("Reshape")) open.push_back(reader->out(0));
      if (rows && SumsRows(*reader)) return reader;
    }
  }
  return nullptr;
}

}  // namespace onnx_fp8
