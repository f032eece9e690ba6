// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/upgrade.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/infer_shapes.h"
#include "graph/onnx/check_inference.h"

namespace onnx_fp8 {
namespace {

// The rewrites of ops that changed at some opset. Each function takes a node in
// the form before that opset and returns the node in the form since. Only the
// types of a few small constants depend on more than the node itself. Errors: a
// use that has no newer form.

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

// Makes the attribute, if it is there, operand `index`: integers become a list,
// a float becomes a number of the type of operand 0 (float, if that is
// unknown).
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

// 9: `spatial` was removed. With spatial 0 each element of a sample had
// statistics of its own.
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

// 9: the batch axis and the lengths were removed.
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

// 10: the mask is of bool; before, it had the type of the data.
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

// 11: Upsample, and Resize of opset 10, behave as Resize with asymmetric
// coordinates. In mode nearest, coordinates are rounded down if an axis grows
// and up if it shrinks (ONNX Runtime's reading; the old text does not say).
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

// 11: Scatter was renamed ScatterElements.
Node* ScatterElements(Graph&, Node* node) {
  node->op = "ScatterElements";
  return node;
}

// 13: `axis` is one axis; before, it was the first of several taken as one.
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

// 13: tf_half_pixel_for_nn was removed.
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

// 14: training mode is an attribute; before, the number of outputs told it. The
// statistics of the batch are no longer outputs.
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

// 16: the default is half_pixel; before, it was output_half_pixel.
Node* RoiAlignDefault(Graph&, Node* node) {
  node->attributes.try_emplace("coordinate_transformation_mode",
                               std::string("output_half_pixel"));
  return node;
}

// 18: Split without sizes takes the number of its outputs from an attribute.
Node* SplitCount(Graph&, Node* node) {
  if (!node->in(1) && !node->Has("num_outputs")) {
    node->attributes["num_outputs"] =
        static_cast<int64_t>(node->outputs().size());
  }
  return node;
}

// 20: the axis is an operand, with another default.
Node* DftAxis(Graph& graph, Node* node) {
  Tensor axis = Tensor::Scalar(node->Int("axis", 1));
  node->attributes.erase("axis");
  std::string base = node->out(0) ? node->out(0)->name : node->op;
  graph.SetInput(node, 2,
                 graph.AddInitializer(graph.FreshName(base + ".axis"), axis));
  return node;
}

// 20: modes were renamed.
Node* GridSampleModes(Graph&, Node* node) {
  std::string mode = node->String("mode", "linear");
  if (mode == "bilinear") node->attributes["mode"] = std::string("linear");
  if (mode == "bicubic") node->attributes["mode"] = std::string("cubic");
  return node;
}

// 21: scale and bias have one element per channel; before, one per group.
Node* GroupNormPerChannel(Graph&, Node* node) {
  Fail("[", node->Where(),
       "] GroupNormalization of opsets 18–20 was withdrawn from ONNX; export "
       "again with opset 21 or newer");
}

// An attribute that became an operand.
struct Moved {
  int since;  // the opset at which the form changed
  const char* op;
  const char* attribute;
  size_t operand;
};

constexpr Moved kMoved[] = {
    {9, "Upsample", "scales", 1},
    {10, "Slice", "starts", 1},
    {10, "Slice", "ends", 2},
    {10, "Slice", "axes", 3},
    {10, "TopK", "k", 1},
    {11, "Clip", "min", 1},
    {11, "Clip", "max", 2},
    {11, "Pad", "pads", 1},
    {11, "Pad", "value", 2},
    {12, "Dropout", "ratio", 1},
    {13, "ReduceSum", "axes", 1},
    {13, "Split", "split", 1},
    {13, "Squeeze", "axes", 1},
    {13, "Unsqueeze", "axes", 1},
    {18, "ReduceL1", "axes", 1},
    {18, "ReduceL2", "axes", 1},
    {18, "ReduceLogSum", "axes", 1},
    {18, "ReduceLogSumExp", "axes", 1},
    {18, "ReduceMax", "axes", 1},
    {18, "ReduceMean", "axes", 1},
    {18, "ReduceMin", "axes", 1},
    {18, "ReduceProd", "axes", 1},
    {18, "ReduceSumSquare", "axes", 1},
};

// Any other change of meaning.
struct Changed {
  int since;
  const char* op;
  Node* (*edit)(Graph&, Node*);
};

constexpr Changed kChanged[] = {
    {9, "BatchNormalization", BatchNormOfElements},
    {9, "Scan", ScanOfBatches},
    {10, "Dropout", DropoutMask},
    {11, "Resize", ResizeAsymmetric},
    {11, "Scatter", ScatterElements},
    {11, "Upsample", UpsampleToResize},
    {13, "Hardmax", SoftmaxOfMatrix},
    {13, "LogSoftmax", SoftmaxOfMatrix},
    {13, "Resize", ResizeHalfPixel},
    {13, "Softmax", SoftmaxOfMatrix},
    {14, "BatchNormalization", BatchNormMode},
    {16, "RoiAlign", RoiAlignDefault},
    {18, "Split", SplitCount},
    {20, "DFT", DftAxis},
    {20, "GridSample", GridSampleModes},
    {21, "GroupNormalization", GroupNormPerChannel},
};

// The newest change that needs the types of a node's operands.
constexpr int kTypesMatter = 13;

// Many files leave out the types of intermediate values. A type that can't be
// inferred here is reported later, when all shapes are known.
void InferTypes(Node& node, int opset) {
  std::vector<DType> declared;
  for (Value* value : node.outputs()) {
    declared.push_back(value ? value->dtype : DType::kUndefined);
  }
  try {
    InferNode(node, opset);
  } catch (const Error&) {
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (node.out(i)) CheckDeclared(node, i, declared[i], node.out(i)->dtype);
  }
}

void TakeTypes(const Graph& outer, Graph& inner) {
  for (Value* value : inner.Values()) {
    if (value->producer || value->is_input || value->is_initializer()) continue;
    const Value* source = outer.Find(value->name);
    if (!source) continue;
    value->dtype = source->dtype;
    value->shape = source->shape;
  }
}

bool UpgradeNodes(Graph& graph, int from, int to);

// Brings the node from its opset (its note's, else `from`) to `to`, one opset
// after the other, because one change may build on an earlier one.
bool UpgradeNode(Graph& graph, Node* node, int from, int to) {
  bool edited = false;
  for (Graph* body : node->Subgraphs()) {
    TakeTypes(graph, *body);
    edited |= UpgradeNodes(*body, from, to);
  }
  int since = from;
  if (auto note = node->metadata.find(kOpsetNote);
      note != node->metadata.end()) {
    since = ParseOpsetNote(note->second, node->Where());
    node->metadata.erase(note);
    edited = true;
  }
  if (since < kTypesMatter) InferTypes(*node, since);
  for (int version = since + 1; version <= to && node->domain.empty();
       ++version) {
    for (const Moved& row : kMoved) {
      if (row.since != version || !node->Is(row.op)) continue;
      AttributeToOperand(graph, node, row.attribute, row.operand);
      edited = true;
    }
    for (const Changed& row : kChanged) {
      if (row.since != version || !node->Is(row.op)) continue;
      node = row.edit(graph, node);
      edited = true;
    }
  }
  if (edited) node->source = -1;
  return edited;
}

// True if a node was edited.
bool UpgradeNodes(Graph& graph, int from, int to) {
  graph.opset = to;
  bool any = false;
  for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
    Node* node = &*it++;  // an edit may replace it
    any |= UpgradeNode(graph, node, from, to);
  }
  return any;
}

}  // namespace

int ParseOpsetNote(const std::string& text, const std::string& where) {
  int opset = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, opset);
  Check(error == std::errc() && stop == end && opset >= kOldestOpset &&
            opset <= kNormalOpset,
        "[", where, "] expected metadata ", kOpsetNote,
        " to be an ONNX opset from ", kOldestOpset, " to ", kNormalOpset,
        ", got \"", text, "\"");
  return opset;
}

void Upgrade(Graph& graph, int to) {
  Check(graph.opset >= kOldestOpset && graph.opset <= kNormalOpset, "[",
        graph.file, "] expected ONNX opset ", kOldestOpset, " to ",
        kNormalOpset, ", got ", graph.opset,
        "; export the model with one of these");
  UpgradeNodes(graph, graph.opset, std::max(graph.opset, to));
}

}  // namespace onnx_fp8
