// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/products_of_file.h"

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

using Nodes = std::vector<const Node*>;

bool IsProduct(const Node& node) {
  return FactsOf(node).kind == OpKind::kProduct;
}

// A session folds the transpose of a weight into a constant of the transpose's
// name, or into the product, which then reads the weight.
struct Constant {
  const Value* operand = nullptr;  // a constant matrix or its transpose
  const Value* weight = nullptr;   // the constant
};

// The first such operand.
Constant ConstantOf(const Node& node) {
  for (const Value* operand : node.inputs()) {
    const Value* matrix = operand;
    // The file may not say shapes, which PeelTranspose asks for.
    while (matrix && matrix->producer && matrix->producer->Is("Transpose")) {
      matrix = matrix->producer->in(0);
    }
    if (matrix && matrix->is_initializer() && matrix->data.rank() == 2) {
      return {operand, matrix};
    }
  }
  return {};
}

// Whether both read a value of one name, besides the constant. A fusion may put
// a Reshape before the session's product, and exchange its operands.
bool ReadOneInput(const Node& session, const Node& file) {
  for (size_t i : {0, 1}) {
    const Value* x = session.in(i);
    if (x == ConstantOf(session).operand) continue;
    if (x->producer && x->producer->Is("Reshape")) x = x->producer->in(0);
    for (size_t j : {0, 1}) {
      const Value* y = file.in(j);
      if (y == ConstantOf(file).operand) continue;
      if (y->name == x->name || y->name == session.in(i)->name) return true;
    }
  }
  return false;
}

// The one that fits; null if none does, or several.
const Node* OnlyOne(const Nodes& nodes, auto fits) {
  const Node* found = nullptr;
  for (const Node* node : nodes) {
    if (!fits(*node)) continue;
    if (found) return nullptr;
    found = node;
  }
  return found;
}

}  // namespace

ProductsOfFile::ProductsOfFile(const Graph& file) {
  for (const Node& node : file.nodes()) {
    if (!IsProduct(node)) continue;
    by_name_[node.name].push_back(&node);
    auto [operand, weight] = ConstantOf(node);
    if (!operand) continue;
    by_constant_[operand->name].push_back(&node);
    if (weight != operand) by_constant_[weight->name].push_back(&node);
  }
  by_name_.erase("");
}

const Node* ProductsOfFile::Find(const Node& node) const {
  if (!IsProduct(node)) return nullptr;
  auto named = by_name_.find(node.name);
  bool certain = named != by_name_.end() && named->second.size() == 1;
  if (certain) return named->second[0];
  const Value* constant = ConstantOf(node).operand;
  auto readers = by_constant_.find(constant ? constant->name : "");
  if (readers == by_constant_.end()) return nullptr;
  const Nodes& all = readers->second;
  if (all.size() == 1) return all[0];
  return OnlyOne(all,
                 [&](const Node& other) { return ReadOneInput(node, other); });
}

}  // namespace onnx_fp8
