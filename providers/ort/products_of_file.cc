// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/products_of_file.h"

#include <algorithm>

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

Nodes Filter(const Nodes& nodes, auto keep) {
  Nodes kept;
  std::ranges::copy_if(nodes, std::back_inserter(kept), keep);
  return kept;
}

const Node* OnlyOne(const Nodes& nodes) {
  return nodes.size() == 1 ? nodes[0] : nullptr;
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
  if (named != by_name_.end()) return OnlyOne(named->second);
  const Value* constant = ConstantOf(node);
  if (!constant) return nullptr;
  auto readers = by_constant_.find(constant->name);
  if (readers == by_constant_.end()) return nullptr;
  const Nodes& all = readers->second;
  if (const Node* one = OnlyOne(all)) return one;
  const Node* fused = OnlyOne(Filter(all, [&](const Node* other) {
    return !other->name.empty() && node.name.starts_with(other->name + "/");
  }));
  if (fused) return fused;
  return OnlyOne(Filter(
      all, [&](const Node* other) { return ReadOneInput(node, *other); }));
}

}  // namespace onnx_fp8
