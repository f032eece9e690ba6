// SPDX-License-Identifier: Apache-2.0
#include "graph/constants.h"

#include <utility>

namespace onnx_fp8 {
namespace {

// Makes the body read `value` from the graph around it.
void ReadFromOutside(Graph& body, Value* value) {
  std::string name = value->name;
  Value* outside = body.AddCaptured(body.FreshName(name));
  outside->dtype = value->dtype;
  outside->shape = value->shape;
  body.ReplaceUses(value, outside);
  if (value->producer) {
    body.RemoveNode(value->producer);
  } else {
    body.RemoveValue(value);
  }
  body.Rename(outside, name);
}

// `holder`: the node of `graph` that has the body.
void LiftTensors(Graph& graph, Node* holder, Graph& body) {
  for (const auto& [value, data] : HeldTensors(body)) {
    if (!IsFloat(data.dtype()) || graph.Find(value->name)) continue;
    if (const Node* node = value->producer) {
      Node* lifted = graph.AddNode("Constant", {}, {value->name},
                                   node->attributes, "", holder);
      lifted->name = node->name;
      lifted->metadata = node->metadata;
      lifted->out(0)->dtype = data.dtype();
      lifted->out(0)->shape = data.shape();
    } else {
      graph.AddInitializer(value->name, data);
    }
    ReadFromOutside(body, value);
  }
}

}  // namespace

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

void LiftFromBodies(Graph& graph) {
  for (Node& node : graph.nodes()) {
    for (Graph* body : node.Subgraphs()) {
      LiftFromBodies(*body);
      LiftTensors(graph, &node, *body);
    }
  }
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

void LiftConstants(Graph& graph) {
  for (const auto& [value, data] : HeldTensors(graph)) {
    AsInitializer(graph, value);
  }
}

}  // namespace onnx_fp8
