// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/old_forms_internal.h"

namespace onnx_fp8 {
namespace {

// New nodes for a node come before it, with its name and module path.
Builder Before(Graph& graph, Node* node) {
  std::string base = node->out(0) ? node->out(0)->name : node->op;
  Builder b(graph, base + ".", node);
  b.set_metadata(node->metadata);
  return b;
}

// The node becomes `op` of `inputs`; its outputs stay.
void Become(Graph& graph, Node* node, const std::string& op,
            const std::vector<Value*>& inputs, Attributes attributes = {}) {
  node->op = op;
  node->attributes = std::move(attributes);
  while (node->inputs().size() > inputs.size()) {
    graph.RemoveInput(node, node->inputs().size() - 1);
  }
  for (size_t i = 0; i < inputs.size(); ++i) graph.SetInput(node, i, inputs[i]);
}

// The data of an initializer or of a Constant node; null for computed values.
const Tensor* ConstantData(const Value* value) {
  if (!value) return nullptr;
  if (value->is_constant()) return &value->data;
  const Node* producer = value->producer;
  return producer && producer->Is("Constant")
             ? producer->TensorAttribute("value")
             : nullptr;
}

bool IsRead(const Graph& graph, const Value* value) {
  return value &&
         (!value->uses.empty() || std::ranges::count(graph.outputs, value) > 0);
}

// Whether every element is at least 1, or for Shrinks, at most 1.
bool Enlarges(const Tensor& scales) {
  for (int64_t i = 0; i < scales.size(); ++i) {
    if (!(DoubleAt(scales, i) >= 1)) return false;
  }
  return true;
}

bool Shrinks(const Tensor& scales) {
  for (int64_t i = 0; i < scales.size(); ++i) {
    if (!(DoubleAt(scales, i) <= 1)) return false;
  }
  return true;
}

Attributes AsymmetricAttributes(const Node& node, const char* nearest) {
  return {{"mode", node.String("mode", "nearest")},
          {"coordinate_transformation_mode", std::string("asymmetric")},
          {"nearest_mode", std::string(nearest)}};
}

}  // namespace

void AttributeToOperand(Graph& graph, Node* node, const std::string& attribute,
                        size_t index) {
  auto it = node->attributes.find(attribute);
  if (it == node->attributes.end()) return;
  Tensor data;
  if (auto* ints = std::get_if<std::vector<int64_t>>(&it->second)) {
    data = Tensor::Ints(*ints);
  } else if (auto* one = std::get_if<int64_t>(&it->second)) {
    data = Tensor::Ints({*one});
  } else if (auto* floats = std::get_if<std::vector<float>>(&it->second)) {
    data = Tensor::From({static_cast<int64_t>(floats->size())}, *floats);
  } else {
    data = Tensor::Scalar(node->Float(attribute, 0));
    const Value* x = node->in(0);
    if (x && IsFloat(x->dtype)) data = ConvertTo(data, x->dtype);
  }
  node->attributes.erase(it);
  std::string base = node->out(0) ? node->out(0)->name : node->op;
  graph.SetInput(
      node, index,
      graph.AddInitializer(graph.FreshName(base + "." + attribute), data));
}

Node* BatchNormOfElements(Graph& graph, Node* node) {
  bool spatial = node->Int("spatial", 1) != 0;
  node->attributes.erase("spatial");
  if (spatial) return node;
  Check(node->outputs().size() == 1, "[", node->Where(),
        "] expected spatial 1 of a BatchNormalization in training mode, got 0");
  Builder b = Before(graph, node);
  Value* x = node->in(0);
  std::vector<Value*> inputs = {b.Op("Flatten", {x}, {{"axis", int64_t{1}}})};
  for (size_t i = 1; i < node->inputs().size(); ++i) {
    inputs.push_back(b.Op("Reshape", {node->in(i), b.Ints({-1})}));
  }
  Value* y = b.Op("BatchNormalization", inputs, node->attributes);
  Become(graph, node, "Reshape", {y, b.Op("Shape", {x})});
  return node;
}

// A Scan over the batch, without states, whose body is the Scan of one sample.
Node* ScanOfBatches(Graph& graph, Node* node) {
  Check(!node->in(0), "[", node->Where(),
        "] expected a Scan without lengths of sequences, which ONNX has "
        "dropped since opset 8, got some");
  auto body = node->Subgraph("body");
  Check(body != nullptr, "[", node->Where(), "] expected a body, got none");
  Attributes attributes = {
      {"body", body}, {"num_scan_inputs", node->Int("num_scan_inputs", 0)}};
  if (node->Has("directions")) {
    attributes["scan_input_directions"] = node->Ints("directions");
  }
  auto sample = std::make_shared<Graph>();
  sample->name = body->name + ".sample";
  sample->file = graph.file;
  sample->opset = graph.opset;
  for (Value* value : body->Values()) {
    if (value->producer || value->is_input || value->is_initializer()) continue;
    sample->AddCaptured(value->name);
  }
  std::vector<Value*> inputs;
  std::vector<std::string> outputs;
  for (size_t i = 1; i < node->inputs().size(); ++i) {
    inputs.push_back(sample->AddInput(
        sample->FreshName(Concat("in.", i)),
        node->in(i) ? node->in(i)->dtype : DType::kUndefined, std::nullopt));
  }
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    outputs.push_back(sample->FreshName(Concat("out.", i)));
  }
  Node* scan = sample->AddNode("Scan", inputs, outputs, std::move(attributes));
  sample->outputs = scan->outputs();
  graph.RemoveInput(node, 0);
  node->attributes = {{"body", sample},
                      {"num_scan_inputs", static_cast<int64_t>(inputs.size())}};
  return node;
}

Node* DropoutMask(Graph& graph, Node* node) {
  Value* mask = node->out(1);
  if (!mask) return node;
  if (IsRead(graph, mask)) {
    Builder b = Before(graph, node);
    Value* bits = b.Ops("Dropout", {node->in(0)}, 2)[1];
    Value* cast = b.Op("CastLike", {bits, node->in(0)});
    graph.MoveOutput(mask, cast->producer, 0);
  }
  node->out(1)->dtype = DType::kBool;
  return node;
}

Node* UpsampleToResize(Graph& graph, Node* node) {
  Become(graph, node, "Resize", {node->in(0), nullptr, node->in(1)},
         AsymmetricAttributes(*node, "floor"));
  return node;
}

Node* ResizeAsymmetric(Graph& graph, Node* node) {
  Value* x = node->in(0);
  Value* scales = node->in(1);
  const Tensor* known = ConstantData(scales);
  Attributes grow = AsymmetricAttributes(*node, "floor");
  if (node->String("mode", "nearest") != "nearest" ||
      (known && Enlarges(*known))) {
    Become(graph, node, "Resize", {x, nullptr, scales}, grow);
    return node;
  }
  if (!known || !Shrinks(*known)) {
    Builder b = Before(graph, node);
    Value* one = b.Constant(Tensor::Scalar(1.0f));
    x = b.Op("Resize", {x, nullptr, b.Op("Max", {scales, one})}, grow);
    scales = b.Op("Min", {scales, one});
  }
  Become(graph, node, "Resize", {x, nullptr, scales},
         AsymmetricAttributes(*node, "ceil"));
  return node;
}

Node* ScatterElements(Graph&, Node* node) {
  node->op = "ScatterElements";
  return node;
}

Node* SoftmaxOfMatrix(Graph& graph, Node* node) {
  int64_t axis = node->Int("axis", 1);
  Value* x = node->in(0);
  if (axis == -1 || (x->shape && axis == x->rank() - 1)) {
    node->attributes["axis"] = int64_t{-1};
    return node;
  }
  Builder b = Before(graph, node);
  Value* rows = b.Op("Flatten", {x}, {{"axis", axis}});
  Value* y = b.Op(node->op, {rows}, {{"axis", int64_t{-1}}});
  Become(graph, node, "Reshape", {y, b.Op("Shape", {x})});
  return node;
}

// floor((x + 0.5) / scale) is half_pixel's coordinate rounded half up.
Node* ResizeHalfPixel(Graph&, Node* node) {
  if (node->String("coordinate_transformation_mode", "half_pixel") !=
      "tf_half_pixel_for_nn") {
    return node;
  }
  Check(node->String("mode", "nearest") == "nearest" &&
            node->String("nearest_mode", "round_prefer_floor") == "floor",
        "[", node->Where(),
        "] expected tf_half_pixel_for_nn with mode nearest and nearest_mode "
        "floor, which has a newer form, got others");
  node->attributes["coordinate_transformation_mode"] =
      std::string("half_pixel");
  node->attributes["nearest_mode"] = std::string("round_prefer_ceil");
  return node;
}

Node* BatchNormMode(Graph& graph, Node* node) {
  if (!node->out(1) && !node->out(2)) return node;
  for (size_t i = 3; i < node->outputs().size(); ++i) {
    Check(!IsRead(graph, node->out(i)), "[", node->Where(),
          "] expected the statistics of the batch not to be read: "
          "BatchNormalization has no such outputs since opset 14");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < 3; ++i) {
    names.push_back(graph.FreshName(
        node->out(i) ? node->out(i)->name : Concat(node->Where(), ".", i)));
  }
  Node* fresh = graph.AddNode(node->op, node->inputs(), names, node->attributes,
                              "", node);
  fresh->name = node->name;
  fresh->metadata = node->metadata;
  fresh->attributes["training_mode"] = int64_t{1};
  for (size_t i = 0; i < 3; ++i) {
    if (node->out(i)) graph.MoveOutput(node->out(i), fresh, i);
  }
  graph.RemoveNode(node);
  return fresh;
}

Node* RoiAlignDefault(Graph&, Node* node) {
  node->attributes.try_emplace("coordinate_transformation_mode",
                               std::string("output_half_pixel"));
  return node;
}

Node* SplitCount(Graph&, Node* node) {
  if (!node->in(1) && !node->Has("num_outputs")) {
    node->attributes["num_outputs"] =
        static_cast<int64_t>(node->outputs().size());
  }
  return node;
}

Node* DftAxis(Graph& graph, Node* node) {
  Tensor axis = Tensor::Scalar(node->Int("axis", 1));
  node->attributes.erase("axis");
  std::string base = node->out(0) ? node->out(0)->name : node->op;
  graph.SetInput(node, 2,
                 graph.AddInitializer(graph.FreshName(base + ".axis"), axis));
  return node;
}

Node* GridSampleModes(Graph&, Node* node) {
  std::string mode = node->String("mode", "linear");
  if (mode == "bilinear") node->attributes["mode"] = std::string("linear");
  if (mode == "bicubic") node->attributes["mode"] = std::string("cubic");
  return node;
}

Node* GroupNormPerChannel(Graph&, Node* node) {
  Fail("[", node->Where(),
       "] GroupNormalization of opsets 18–20 was withdrawn from ONNX; export "
       "again with opset 21 or newer");
}

}  // namespace onnx_fp8
