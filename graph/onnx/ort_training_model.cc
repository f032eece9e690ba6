// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/ort_training_model.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/infer_shapes.h"
#include "graph/onnx/model_file_internal.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

void RequireTrainingModel(const onnx::ModelProto& model,
                          const std::string& path) {
  const auto& g = model.graph();
  bool reset = false, gradients = false;
  for (const auto& input : g.input()) reset |= input.name() == kOrtReset;
  for (const auto& output : g.output()) {
    gradients |= output.name().ends_with(kOrtAccumulated);
  }
  Check(reset && gradients && g.output_size() > 0, "[", path,
        "] expected a training model of onnxruntime.training.artifacts, with "
        "the input ",
        kOrtReset, " and outputs …", kOrtAccumulated, ", got another model");
}

// The names that `node` reads, in subgraphs too.
void AddOperands(const onnx::NodeProto& node, Names* names) {
  names->insert(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    for (const auto& inner : attribute.g().node()) AddOperands(inner, names);
    for (const auto& output : attribute.g().output()) {
      names->insert(output.name());
    }
  }
}

// Leaves the nodes that compute `wanted`, and drops optional results that
// nobody reads any more.
Names KeepAncestors(onnx::GraphProto* g, const Names& wanted) {
  Names needed = wanted;
  std::vector<bool> keep(static_cast<size_t>(g->node_size()));
  for (int i = g->node_size(); i-- > 0;) {
    const auto& node = g->node(i);
    bool any = std::ranges::any_of(
        node.output(), [&](const auto& name) { return needed.contains(name); });
    keep[static_cast<size_t>(i)] = any;
    if (any) AddOperands(node, &needed);
  }
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  nodes.Swap(g->mutable_node());
  for (int i = 0; i < nodes.size(); ++i) {
    if (!keep[static_cast<size_t>(i)]) continue;
    onnx::NodeProto* node = g->add_node();
    node->Swap(nodes.Mutable(i));
    auto* outputs = node->mutable_output();
    // Our ops have all of their results.
    while (node->domain() != kDomain && outputs->size() > 1 &&
           !needed.contains(outputs->Get(outputs->size() - 1))) {
      outputs->RemoveLast();
    }
  }
  return needed;
}

template <typename Field>
void KeepNamed(Field* field, const Names& names) {
  Field all;
  all.Swap(field);
  for (auto& item : all) {
    if (names.contains(item.name())) field->Add()->Swap(&item);
  }
}

// The scores that the loss reads; "" if they are not known.
std::string ScoresOf(const onnx::GraphProto& g, const std::string& loss) {
  for (const auto& node : g.node()) {
    if (node.op_type() == "SoftmaxCrossEntropyLoss" && node.input_size() > 0 &&
        node.output(0) == loss) {
      return node.input(0);
    }
  }
  return "";
}

void BecomeInitializer(Graph& graph, Value* input, const Tensor& data) {
  Check(input->dtype == data.dtype(), "[", graph.file, "] expected ",
        input->name, " of type ", Name(input->dtype),
        ", got a checkpoint with ", Name(data.dtype()),
        ": it is of another model");
  bool fits = !input->shape || input->shape->size() == data.shape().size();
  for (size_t i = 0; fits && input->shape && i < input->shape->size(); ++i) {
    int64_t size = (*input->shape)[i];
    fits = size < 0 || size == data.shape()[i];
  }
  Check(fits, "[", graph.file, "] expected ", input->name, " of shape ",
        input->shape ? ToString(*input->shape) : "", ", got a checkpoint with ",
        ToString(data.shape()), ": it is of another model");
  std::erase(graph.inputs, input);
  input->is_input = false;
  input->axis_names.clear();
  input->shape = data.shape();
  input->data = data;
}

// Training models do not say the types of all values.
void InferForwardTypes(Graph& graph) {
  for (Node& node : graph.nodes()) {
    try {
      InferNode(node, graph.opset);
    } catch (const Error&) {
      // A session has the shapes of a batch, and judges the node.
    }
  }
}

// The loss of a model of tokens reads scores of rows, and one label for each
// row. Labels become an input with the axes of the tokens, as all programs
// but onnxruntime-training have them.
void ShapeLabels(Graph& graph, const std::string& loss) {
  Node* node = graph.Find(loss)->producer;
  if (!node || node->op != "SoftmaxCrossEntropyLoss") return;
  Value *scores = node->in(0), *labels = node->in(1);
  if (!scores || !labels) return;
  const Node* rows = scores->producer;
  if (!rows || !rows->Is("Reshape") || !labels->is_input || !labels->shape ||
      labels->rank() != 1 || labels->uses.size() != 1) {
    return;
  }
  const Value* whole = rows->in(0);
  if (!whole->shape || whole->rank() < 3) return;
  for (const Value* input : graph.inputs) {
    if (!input->shape || input->rank() != whole->rank() - 1) continue;
    labels->shape = input->shape;
    labels->axis_names = input->axis_names;
    Builder b(graph, labels->name + ".", node);
    graph.SetInput(node, 1, b.Op("Reshape", {labels, b.Ints({-1})}));
    return;
  }
}

}  // namespace

void RequireNoOrtTrainingModel(const Graph& graph) {
  bool accumulates = std::ranges::any_of(graph.outputs, [](const Value* value) {
    return value->name.ends_with(kOrtAccumulated);
  });
  Check(!accumulates || !graph.Find(kOrtReset), "[", graph.file,
        "] is a training model of onnxruntime-training, whose parameters are "
        "inputs: expected the folder of its artifacts, as `ort_training`");
}

OrtForward ReadOrtForward(const std::string& path, const TensorMap& parameters,
                          const Budgets& budgets) {
  ModelFile file = ReadModelFile(path, budgets);
  RequireTrainingModel(file.model, path);
  onnx::GraphProto* g = file.model.mutable_graph();
  OrtForward forward;
  forward.loss = g->output(0).name();
  for (const auto& input : g->input()) {
    const std::string& name = input.name();
    if (!name.ends_with(kOrtBuffer)) continue;
    std::string parameter =
        name.substr(0, name.size() - std::string_view(kOrtBuffer).size());
    Check(parameters.contains(parameter), "[", path, "] trains ", parameter,
          ", which the checkpoint lacks: it is of another model");
  }
  Names inputs;
  for (const auto& input : g->input()) inputs.insert(input.name());
  for (const auto& [name, tensor] : parameters) {
    Check(inputs.contains(name), "[", path, "] has no input ", name,
          ", a parameter of the checkpoint: it is of another model");
  }
  std::string scores = ScoresOf(*g, forward.loss);
  Names wanted = {forward.loss};
  if (!scores.empty()) wanted.insert(scores);
  Names needed = KeepAncestors(g, wanted);
  for (const auto& [name, tensor] : parameters) needed.insert(name);
  KeepNamed(g->mutable_input(), needed);
  KeepNamed(g->mutable_initializer(), needed);
  KeepNamed(g->mutable_value_info(), needed);
  KeepNamed(g->mutable_output(), {forward.loss});
  if (!scores.empty()) g->add_output()->set_name(scores);
  forward.graph = ImportModelFile(std::move(file));
  for (const auto& [name, tensor] : parameters) {
    BecomeInitializer(*forward.graph, forward.graph->Find(name), tensor);
  }
  InferForwardTypes(*forward.graph);
  ShapeLabels(*forward.graph, forward.loss);
  return forward;
}

}  // namespace onnx_fp8
