// SPDX-License-Identifier: Apache-2.0
#include "graph/constants.h"

namespace onnx_fp8 {

Tensor ConstantIn(const Node& node) {
  if (const Tensor* value = node.TensorAttribute("value")) return *value;
  if (node.Has("value_int")) return Tensor::Scalar(node.Int("value_int", 0));
  if (node.Has("value_ints")) return Tensor::Ints(node.Ints("value_ints"));
  if (node.Has("value_float")) {
    return Tensor::Scalar(node.Float("value_float", 0));
  }
  if (node.Has("value_floats")) {
    std::vector<float> values = node.Floats("value_floats");
    return Tensor::From({static_cast<int64_t>(values.size())}, values);
  }
  return {};
}

std::vector<HeldTensor> HeldTensors(const Graph& graph) {
  std::vector<HeldTensor> held;
  for (Value* value : graph.Initializers()) {
    held.push_back({value, value->data});
  }
  for (const Node& node : graph.nodes()) {
    if (!node.Is("Constant") || !node.out(0)) continue;
    Tensor data = ConstantIn(node);
    if (data.defined()) held.push_back({node.out(0), std::move(data)});
  }
  return held;
}

Value* AsInitializer(Graph& graph, Value* value) {
  if (value->is_initializer()) return value;
  std::string name = value->name;
  Value* initializer =
      graph.AddInitializer(graph.FreshName(name), ConstantIn(*value->producer));
  graph.ReplaceUses(value, initializer);
  graph.RemoveNode(value->producer);
  graph.Rename(initializer, name);
  return initializer;
}

}  // namespace onnx_fp8
