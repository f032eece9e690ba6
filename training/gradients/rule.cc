// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"

#include <algorithm>
#include <numeric>

#include "graph/onnx/infer_shapes.h"

namespace onnx_fp8 {

Value* ExpandTo(Builder& b, Value* x, const Shape& shape) {
  if (*x->shape == shape) return x;
  return b.Op("Expand", {x, b.Ints(shape)});
}

Value* Filled(Builder& b, double number, const Value* like,
              const Shape& shape) {
  return ExpandTo(b, b.Scalar(number, like), shape);
}

Value* Masked(Builder& b, Value* condition, Value* x) {
  return b.Op("Where", {condition, x, b.Scalar(0, x)});
}

Value* ZeroOne(Builder& b, Value* condition, const Value* like) {
  return b.Cast(condition, like->dtype);
}

Value* SliceAxis(Builder& b, Value* x, int64_t axis, int64_t begin,
                 int64_t end) {
  if (begin == 0 && end == x->dim(axis)) return x;
  return b.Op("Slice", {x, b.Ints({begin}), b.Ints({end}), b.Ints({axis})});
}

Value* Place(Builder& b, Value* x, const std::vector<int64_t>& begin,
             const Shape& shape) {
  std::vector<int64_t> pads = begin;
  for (size_t i = 0; i < shape.size(); ++i) {
    pads.push_back(shape[i] - (*x->shape)[i] - begin[i]);
  }
  if (std::ranges::all_of(pads, [](int64_t pad) { return pad == 0; })) return x;
  return b.Op("Pad", {x, b.Ints(pads)});
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> range(
      static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

std::vector<int64_t> ConstantInts(const GradientContext& c, size_t i,
                                  const char* what,
                                  std::vector<int64_t> otherwise) {
  const Value* value = c.In(i);
  if (!value) return otherwise;
  Check(value->is_constant(), "[", c.node.Where(), "] expected constant ", what,
        " for the gradient, got the computed value \"", value->name, "\"");
  return ToInts(value->data);
}

Value* NeedOutput(GradientContext& c, size_t i, const std::string& suffix) {
  if (Value* value = c.Out(i)) return value;
  Graph& graph = c.b.graph();
  Value* value = graph.AddOutput(
      &c.node, i, graph.FreshName(c.Out(0)->name + "." + suffix));
  InferNode(c.node, graph.opset);
  return value;
}

std::vector<int64_t> NormalizeAxes(std::vector<int64_t> axes, int64_t rank,
                                   const std::string& where) {
  for (int64_t& axis : axes) axis = NormalizeAxis(axis, rank, where);
  std::ranges::sort(axes);
  Check(std::ranges::adjacent_find(axes) == axes.end(), "[", where,
        "] expected different axes, got one twice");
  return axes;
}

}  // namespace onnx_fp8
