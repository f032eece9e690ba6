// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/straight_through.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "graph/builder.h"
#include "graph/constants.h"
#include "onnx_fp8/shape.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kScale = 1;
constexpr size_t kZero = 2;

struct Range {
  double low, high;
};

// The codes of a dtype; nothing for dtypes that are no codes.
std::optional<Range> CodesOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Range{-128, 127};
    case DType::kUInt8:
      return Range{0, 255};
    case DType::kInt16:
      return Range{-32768, 32767};
    case DType::kUInt16:
      return Range{0, 65535};
    case DType::kE4M3:
      return Range{-448, 448};
    case DType::kE5M2:
      return Range{-57344, 57344};
    default:
      return {};
  }
}

Tensor ConstantOf(const Value* value) {
  if (!value) return {};
  if (value->is_initializer()) return value->data;
  bool constant = value->producer && value->producer->Is("Constant");
  return constant ? ConstantIn(*value->producer) : Tensor{};
}

// Both omitted, one value, or equal constants.
bool Same(const Value* a, const Value* b) {
  if (a == b) return true;
  Tensor x = ConstantOf(a), y = ConstantOf(b);
  return x.defined() && y.defined() && x.dtype() == y.dtype() &&
         x.shape() == y.shape() &&
         std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

// Before the graph is specialized, types of results may be unknown.
DType CodeType(const Node& quantize) {
  if (const Value* zero = quantize.in(kZero)) return zero->dtype;
  return static_cast<DType>(
      quantize.Int("output_dtype", static_cast<int64_t>(DType::kUInt8)));
}

struct Rounding {
  Node* quantize = nullptr;
  Range codes = {};
};

// The QuantizeLinear that a DequantizeLinear undoes.
std::optional<Rounding> Undoes(const Node& dequantize) {
  Value* code = dequantize.in(0);
  Range bounds = {-HUGE_VAL, HUGE_VAL};
  while (code && code->producer && code->producer->Is("Clip")) {
    const Node& clip = *code->producer;
    for (size_t i : {1, 2}) {
      if (!clip.in(i)) continue;
      Tensor bound = ConstantOf(clip.in(i));
      if (!bound.defined() || bound.size() != 1) return {};
      double x = DoubleAt(bound, 0);
      if (i == 1) bounds.low = std::max(bounds.low, x);
      if (i == 2) bounds.high = std::min(bounds.high, x);
    }
    code = clip.in(0);
  }
  Node* quantize = code ? code->producer : nullptr;
  bool same = quantize && quantize->Is("QuantizeLinear") && quantize->in(0) &&
              Same(quantize->in(kScale), dequantize.in(kScale)) &&
              Same(quantize->in(kZero), dequantize.in(kZero)) &&
              quantize->Int("axis", 1) == dequantize.Int("axis", 1) &&
              quantize->Int("block_size", 0) == dequantize.Int("block_size", 0);
  auto codes = same ? CodesOf(CodeType(*quantize)) : std::nullopt;
  if (!codes) return {};
  return Rounding{
      quantize,
      {std::max(codes->low, bounds.low), std::min(codes->high, bounds.high)}};
}

// A scale or zero point in a shape that broadcasts to x, in x's dtype. With
// blocks, x has an axis more.
Value* Spread(Builder& b, Value* operand, const Value* x, int64_t axis,
              int64_t block) {
  operand = b.Cast(operand, x->dtype);
  Shape shape = *operand->shape;
  if (NumElements(shape) == 1) return b.Reshape(operand, {});
  if (block > 0) {
    shape.insert(shape.begin() + axis + 1, 1);
  } else {
    Shape one(x->shape->size(), 1);
    one[static_cast<size_t>(axis)] = NumElements(shape);
    shape = one;
  }
  return b.Reshape(operand, shape);
}

// A bool for each element of x: its code is not cut off.
Value* Inside(Builder& b, const Rounding& rounding) {
  const Node& node = *rounding.quantize;
  Value* x = node.in(0);
  const Shape whole = *x->shape;
  int64_t axis = NormalizeAxis(node.Int("axis", 1),
                               std::max<int64_t>(x->rank(), 2), node.Where());
  int64_t block = node.Int("block_size", 0);
  if (block > 0) {
    Shape parts = whole;
    parts[static_cast<size_t>(axis)] /= block;
    parts.insert(parts.begin() + axis + 1, block);
    x = b.Reshape(x, parts);
  }
  Value* code = b.Div(x, Spread(b, node.in(kScale), node.in(0), axis, block));
  if (!IsFloat8(CodeType(node))) {
    code = b.Op("Round", {code});
    if (node.in(kZero)) {
      code = b.Add(code, Spread(b, node.in(kZero), node.in(0), axis, block));
    }
  }
  Value* inside =
      b.Op("And",
           {b.Op("GreaterOrEqual", {code, b.Scalar(rounding.codes.low, code)}),
            b.Op("LessOrEqual", {code, b.Scalar(rounding.codes.high, code)})});
  return b.Reshape(inside, whole);
}

}  // namespace

void AddStraightThrough(Graph& graph) {
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); it != nodes.end();) {
    Node& node = *it++;
    if (!node.Is("DequantizeLinear")) continue;
    auto rounding = Undoes(node);
    if (!rounding) continue;
    Builder b(graph, node.out(0)->name + ".",
              it == nodes.end() ? nullptr : &*it);
    b.set_metadata(node.metadata);
    Value* y = node.out(0);
    Value* x = rounding->quantize->in(0);
    Value* inside = Inside(b, *rounding);
    // The first operand is x at first, and y only after ReplaceUses, which
    // would replace it.
    Value* z = b.Ours("StraightThrough", {x, x, inside});
    graph.ReplaceUses(y, z);
    graph.SetInput(z->producer, 0, y);
    std::string name = y->name;
    graph.Rename(y, graph.FreshName(name + ".rounded"));
    graph.Rename(z, name);
  }
}

void RemoveStraightThrough(Graph& graph) {
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); it != nodes.end();) {
    Node* node = &*it++;
    if (!node->IsOurs("StraightThrough")) continue;
    Value* y = node->in(0);
    std::string name = node->out(0)->name;
    graph.ReplaceUses(node->out(0), y);
    graph.RemoveNode(node);
    graph.Rename(y, name);
  }
}

std::vector<std::string> RoundedForGood(const Graph& graph) {
  std::unordered_set<const Node*> undone;
  for (const Node& node : graph.nodes()) {
    if (!node.Is("DequantizeLinear")) continue;
    if (auto rounding = Undoes(node)) undone.insert(rounding->quantize);
  }
  std::vector<std::string> places;
  for (const Node& node : graph.nodes()) {
    if (node.Is("QuantizeLinear") && !undone.contains(&node)) {
      places.push_back(node.Where());
    }
  }
  return places;
}

}  // namespace onnx_fp8
