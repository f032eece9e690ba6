// SPDX-License-Identifier: Apache-2.0
#include "graph/builder.h"

#include <numeric>

#include "graph/onnx/infer_shapes.h"

namespace onnx_fp8 {

std::vector<Value*> Builder::Ops(const std::string& op,
                                 const std::vector<Value*>& inputs,
                                 size_t outputs, Attributes attributes,
                                 const std::string& domain) {
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs; ++i) {
    std::string name = prefix_ + op;
    if (i > 0) name += "." + std::to_string(i);
    names.push_back(graph_.FreshName(name));
  }
  Node* node =
      graph_.AddNode(op, inputs, names, std::move(attributes), domain, before_);
  node->metadata = metadata_;
  node->part = part_;
  InferNode(*node, graph_.opset);
  return node->outputs();
}

Value* Builder::Op(const std::string& op, const std::vector<Value*>& inputs,
                   Attributes attributes, const std::string& domain) {
  return Ops(op, inputs, 1, std::move(attributes), domain)[0];
}

Value* Builder::Constant(const Tensor& data) {
  // A short constant is named after its content, so equal constants are shared.
  if (data.size() <= 8) {
    std::string name = std::string("const.") + Name(data.dtype());
    if (data.rank() > 0) name += ToString(data.shape());
    for (int64_t i = 0; i < data.size(); ++i) {
      double x = DoubleAt(data, i);
      char text[32];
      std::snprintf(text, sizeof text, " %.17g", x);
      name += text;
    }
    Value* same = graph_.Find(name);
    if (same && same->is_constant() && Identical(same->data, data)) return same;
    return graph_.AddInitializer(graph_.FreshName(name), data);
  }
  return graph_.AddInitializer(graph_.FreshName(prefix_ + "const"), data);
}

Value* Builder::Scalar(double value, const Value* like) {
  return Constant(ConvertTo(Tensor::Scalar(value), like->dtype));
}

Value* Builder::Reshape(Value* x, const Shape& shape) {
  if (x->shape && *x->shape == shape) return x;
  return Op("Reshape", {x, Ints(shape)}, {{"allowzero", int64_t{1}}});
}

Value* Builder::Transpose(Value* x, const std::vector<int64_t>& perm) {
  std::vector<int64_t> identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (perm == identity) return x;
  return Op("Transpose", {x}, {{"perm", perm}});
}

Value* Builder::SwapLast(Value* x) {
  std::vector<int64_t> perm(static_cast<size_t>(x->rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return Transpose(x, perm);
}

Value* Builder::Cast(Value* x, DType to) {
  if (x->dtype == to) return x;
  return Op("Cast", {x}, {{"to", static_cast<int64_t>(to)}});
}

Value* Builder::ReduceSum(Value* x, const std::vector<int64_t>& axes,
                          bool keepdims) {
  if (axes.empty()) return x;
  return Op("ReduceSum", {x, Ints(axes)},
            {{"keepdims", static_cast<int64_t>(keepdims)}});
}

Value* Builder::SumTo(Value* x, const Shape& shape) {
  if (*x->shape == shape) return x;
  std::vector<int64_t> axes;
  size_t extra = x->shape->size() - shape.size();
  for (size_t i = 0; i < x->shape->size(); ++i) {
    bool added = i < extra;
    if (added || (shape[i - extra] == 1 && (*x->shape)[i] != 1)) {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  return Reshape(ReduceSum(x, axes, true), shape);
}

}  // namespace onnx_fp8
