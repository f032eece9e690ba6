// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/ort_training_model.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/ort_scores.h"

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
    // Our ops omit no results.
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

// Removes a loss that this program has itself. The graph's output is then the
// scores, as for inference.
void TakeOffLoss(OrtForward* forward, Value* loss) {
  Graph& graph = *forward->graph;
  Node* node = loss->producer;
  if (!node || !node->Is("SoftmaxCrossEntropyLoss")) return;
  Value *scores = node->in(0), *labels = node->in(1);
  bool plain = scores && labels && labels->is_input && !node->in(2) &&
               labels->uses.size() == 1 && loss->uses.empty() &&
               !node->Has("ignore_index") &&
               node->String("reduction", "mean") == "mean" &&
               labels->dtype == DType::kInt64 && scores->shape &&
               scores->rank() == 2;
  if (!plain) return;
  forward->loss = "cross_entropy";
  forward->labels = labels->name;
  graph.outputs = {ScoresOfTokens(scores)};
  graph.RemoveNode(node);
  std::erase(graph.inputs, labels);
  labels->is_input = false;
  graph.RemoveValue(labels);
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
  const std::string loss = g->output(0).name();
  forward.loss = "output:" + loss;
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
  Names needed = KeepAncestors(g, {loss});
  for (const auto& [name, tensor] : parameters) needed.insert(name);
  KeepNamed(g->mutable_input(), needed);
  KeepNamed(g->mutable_initializer(), needed);
  KeepNamed(g->mutable_value_info(), needed);
  KeepNamed(g->mutable_output(), {loss});
  forward.graph = ImportModelFile(std::move(file));
  for (const auto& [name, tensor] : parameters) {
    BecomeInitializer(*forward.graph, forward.graph->Find(name), tensor);
  }
  InferForwardTypes(*forward.graph);
  TakeOffLoss(&forward, forward.graph->outputs[0]);
  return forward;
}

}  // namespace onnx_fp8
