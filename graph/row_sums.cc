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

Node* Find(const Value* x, int64_t columns) {
  if (!x->concrete()) return nullptr;
  for (Node* reader : x->uses) {
    if (reader->in(0) != x) continue;
    if (reader->Is("Reshape")) {
      Node* found = Find(reader->out(0), columns);
      if (found) return found;
    }
    if (x->rank() > 0 && x->dim(-1) == columns && SumsRows(*reader)) {
      return reader;
    }
  }
  return nullptr;
}

}  // namespace

Node* SumOfRows(const Value* x) {
  const int64_t columns = x->dim(-1);
  while (x->producer && x->producer->Is("Reshape")) x = x->producer->in(0);
  return Find(x, columns);
}

}  // namespace onnx_fp8
