// SPDX-License-Identifier: Apache-2.0
//
// Sequences of tensors exist only while the graph is walked: an exporter's
// split and chunk become Split, stacks become Concat.
#include "base/check.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/passes/specializer.h"

namespace onnx_fp8 {

// One Split along `axis`, by an operand that is a chunk size, a list of sizes,
// or missing: then each part is one element, with or without the axis
// (keepdims).
std::vector<Value*> Specializer::SplitToSequence(Scope& scope,
                                                 const Node& node) {
  Value* x = TensorAt(scope, node, 0);
  int64_t axis = NormalizeAxis(node.Int("axis", 0), x->rank(), node.Where());
  int64_t length = x->dim(axis);
  std::vector<int64_t> sizes;
  bool squeeze = false;
  if (node.in(1)) {
    Value* split = TensorAt(scope, node, 1);
    if (!split->is_constant()) AskFor(node, split, "the split sizes");
    Check(split->is_constant(), "[", node.Where(),
          "] expected the split sizes to be known from the input shapes");
    if (split->data.rank() == 0) {
      int64_t chunk = IntAt(split->data, 0);
      Check(chunk > 0, "[", node.Where(), "] expected a chunk size > 0, got ",
            chunk);
      spending_.Take(&Budgets::visits, length / chunk, node);
      for (int64_t at = 0; at < length; at += chunk) {
        sizes.push_back(std::min(chunk, length - at));
      }
    } else {
      sizes = ToInts(split->data);
    }
  } else {
    spending_.Take(&Budgets::visits, length, node);
    sizes.assign(static_cast<size_t>(length), 1);
    squeeze = node.Int("keepdims", 1) == 0;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < sizes.size(); ++i) {
    names.push_back(
        out_.FreshName(node.out(0)->name + "." + std::to_string(i)));
  }
  Value* split = Constant(Tensor::Ints(sizes), node.out(0)->name + ".split");
  Node* made = out_.AddNode("Split", {x, split}, names, {{"axis", axis}});
  made->name = node.name;
  made->metadata = node.metadata;
  InferNode(*made, out_.opset);
  RequireShapes(*made);
  spending_.Take(&Budgets::nodes, 1, node);
  std::vector<Value*> parts = made->outputs();
  if (squeeze) {
    Value* axes = Constant(Tensor::Ints({axis}), "axes");
    for (Value*& part : parts) part = Emit(node, "Squeeze", {part, axes});
  }
  return parts;
}

// A sequence is a list of values of the new graph (Entry). Ops on sequences
// edit such lists and emit no nodes, except ops that split, join or stack
// tensors.
bool Specializer::VisitSequence(Scope& scope, const Node& node) {
  if (!node.domain.empty()) return false;
  auto sequence = [&](size_t i) -> std::vector<Value*> {
    Check(node.in(i) != nullptr, "[", node.Where(), "] expected input ", i);
    Entry entry = Lookup(scope, node.in(i));
    Check(entry.is_sequence, "[", node.Where(), "] expected a sequence, got ",
          node.in(i)->name);
    return entry.sequence;
  };
  auto position = [&](size_t input, size_t size, size_t otherwise) -> size_t {
    if (!node.in(input)) return otherwise;
    int64_t i = KnownInt(node, TensorAt(scope, node, input), "the position");
    int64_t n = static_cast<int64_t>(size);
    Check(i >= -n && i <= n, "[", node.Where(), "] expected a position in ", -n,
          "…", n, ", got ", i);
    return static_cast<size_t>(i < 0 ? i + n : i);
  };
  auto set = [&](std::vector<Value*> parts) {
    scope.entries[node.out(0)] = Entry{nullptr, std::move(parts), true};
  };
  if (node.op == "SequenceEmpty") {
    set({});
  } else if (node.op == "SequenceConstruct") {
    std::vector<Value*> parts;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      parts.push_back(TensorAt(scope, node, i));
    }
    set(std::move(parts));
  } else if (node.op == "SplitToSequence") {
    set(SplitToSequence(scope, node));
  } else if (node.op == "SequenceInsert") {
    std::vector<Value*> parts = sequence(0);
    size_t at = position(2, parts.size(), parts.size());
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at),
                 TensorAt(scope, node, 1));
    set(std::move(parts));
  } else if (node.op == "SequenceErase") {
    std::vector<Value*> parts = sequence(0);
    Check(!parts.empty(), "[", node.Where(),
          "] expected a sequence with "
          "elements, got an empty one");
    size_t at = position(1, parts.size(), parts.size() - 1);
    Check(at < parts.size(), "[", node.Where(), "] position ", at,
          " lies behind the sequence's end");
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
    set(std::move(parts));
  } else if (node.op == "SequenceAt") {
    std::vector<Value*> parts = sequence(0);
    size_t at = position(1, parts.size(), 0);
    Check(at < parts.size(), "[", node.Where(), "] position ", at,
          " lies behind the sequence's end");
    Bind(scope, node.out(0), parts[at]);
  } else if (node.op == "SequenceLength") {
    auto length = static_cast<int64_t>(sequence(0).size());
    Bind(scope, node.out(0),
         Constant(Tensor::Scalar(length), node.out(0)->name));
  } else if (node.op == "ConcatFromSequence") {
    std::vector<Value*> parts = sequence(0);
    int64_t axis = node.Int("axis", 0);
    Check(!parts.empty(), "[", node.Where(),
          "] expected a sequence with "
          "elements, got an empty one");
    Value* joined = node.Int("new_axis", 0) != 0
                        ? Stack(node, parts, axis)
                        : Emit(node, "Concat", parts, {{"axis", axis}});
    Bind(scope, node.out(0), joined);
  } else if (node.op == "Identity" && node.in(0) &&
             Lookup(scope, node.in(0)).is_sequence) {
    set(sequence(0));
  } else {
    return false;
  }
  return true;
}

}  // namespace onnx_fp8
