// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/products_of_file.h"

namespace onnx_fp8 {
namespace {

using Nodes = std::vector<const Node*>;

bool IsProduct(const Node& node) {
  return node.Is("MatMul") || node.Is("Gemm");
}

// The first operand that is a constant matrix or its transpose; null if there
// is none. A session folds a transpose into a constant of the transpose's name.
const Value* ConstantOf(const Node& node) {
  for (const Value* operand : node.inputs()) {
    const Value* matrix = operand;
    // The file may not say shapes, which PeelTranspose asks for.
    while (matrix && matrix->producer && matrix->producer->Is("Transpose")) {
      matrix = matrix->producer->in(0);
    }
    if (matrix && matrix->is_initializer() && matrix->data.rank() == 2) {
      return operand;
    }
  }
  return nullptr;
}

// Whether both read a value of one name in one slot, besides the constant. A
// fusion may put a Reshape before the session's product.
bool ReadOneInput(const Node& session, const Node& file) {
  for (size_t slot : {0, 1}) {
    const Value* x = session.in(slot);
    if (x == ConstantOf(session)) continue;
    const std::string& name = file.in(slot)->name;
    if (x->name == name) return true;
    bool reshaped = x->producer && x->producer->Is("Reshape");
    if (reshaped && x->producer->in(0)->name == name) return true;
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
    const Value* constant = ConstantOf(node);
    if (constant) by_constant_[constant->name].push_back(&node);
  }
  by_name_.erase("");
}

const Node* ProductsOfFile::Find(const Node& node) const {
  if (!IsProduct(node)) return nullptr;
  auto named = by_name_.find(node.name);
  bool certain = named != by_name_.end() && named->second.size() == 1;
  if (certain) return named->second[0];
  const Value* constant = ConstantOf(node);
  auto readers = by_constant_.find(constant ? constant->name : "");
  if (readers == by_constant_.end()) return nullptr;
  const Nodes& all = readers->second;
  if (all.size() == 1) return all[0];
  return OnlyOne(all,
                 [&](const Node& other) { return ReadOneInput(node, other); });
}

}  // namespace onnx_fp8
