// SPDX-License-Identifier: Apache-2.0
//
// Finds the values that a walk must know, and the inputs that decide them.
#include <unordered_set>
#include <vector>

#include "graph/passes/specializer.h"

namespace onnx_fp8 {

bool MayBeKey(DType dtype, const Shape& shape) {
  return (IsInteger(dtype) || dtype == DType::kBool) && shape.size() <= 1 &&
         NumElements(shape) == 1;
}

InputValues ValuesOf(const Graph& graph,
                     const std::map<std::string, Tensor>& feeds) {
  InputValues values;
  for (const Value* input : graph.inputs) {
    auto it = feeds.find(input->name);
    if (it == feeds.end() || it->second.dtype() != input->dtype) continue;
    if (!MayBeKey(input->dtype, it->second.shape())) continue;
    values[input->name] = IntAt(it->second, 0);
  }
  return values;
}

Specializer::Sources Specializer::SourcesOf(const Node& reader,
                                            const Value* value) const {
  Sources sources;
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open = {value};
  while (!open.empty()) {
    value = open.back();
    open.pop_back();
    if (value->is_constant() || !seen.insert(value).second) continue;
    spending_.Take(&Budgets::visits, 1, reader);
    const Node* node = value->producer;
    if (!node) {
      bool key = value->is_input && !value->is_initializer() &&
                 MayBeKey(value->dtype, *value->shape);
      if (key) sources.keys.insert(value->name);
      sources.data |= !key;
      continue;
    }
    size_t before = open.size();
    for (const Value* input : node->inputs()) {
      if (input && !input->is_constant()) open.push_back(input);
    }
    // No operand decides it: the node draws, or is too large to be folded.
    sources.data |= open.size() == before;
  }
  return sources;
}

void Specializer::AskFor(const Node& node, const Value* value,
                         const char* what) const {
  if (!value) return;
  std::set<std::string> keys = SourcesOf(node, value).keys;
  if (keys.empty()) return;
  std::string names, given;
  for (const std::string& name : keys) {
    names += (names.empty() ? "\"" : ", \"") + name + "\"";
    given += (given.empty() ? "" : ",") + name + "=N";
  }
  throw NeedsValues(
      Concat("[", node.Where(), "] expected a value of the input ", names,
             ", which decides ", what, ", got none: give it with `value` ",
             given),
      keys);
}

int64_t Specializer::KnownInt(const Node& node, const Value* value,
                              const char* what) const {
  bool known = value && value->is_constant();
  if (!known) AskFor(node, value, what);
  Check(known && value->data.size() == 1, "[", node.Where(), "] expected ",
        what, " to be known from the input shapes, got a computed value");
  return IntAt(value->data, 0);
}

}  // namespace onnx_fp8
