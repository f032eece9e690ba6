// SPDX-License-Identifier: Apache-2.0
#include "training/loss_values.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "training/loss.h"

namespace onnx_fp8 {
namespace {

constexpr char kOutput[] = "output";

bool Ignores(const LossSpec& loss) {
  return FindLoss(loss.kind)->label == DType::kInt64;
}

// The value of `wanted` in a graph whose nodes are in order.
Tensor Run(const Graph& graph, const Value* wanted, const TensorMap& feeds,
           const Evaluator& evaluator) {
  std::unordered_map<const Value*, Tensor> values;
  for (const Value* input : graph.inputs) {
    values[input] = feeds.at(input->name);
  }
  for (const Value* constant : graph.Initializers()) {
    values[constant] = constant->data;
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Tensor> inputs;
    for (const Value* in : node.inputs()) inputs.push_back(values.at(in));
    std::vector<Tensor> results = evaluator.Evaluate(node, inputs);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      values[node.out(i)] = results[i];
    }
  }
  return values.at(wanted);
}

}  // namespace

double LossOf(const LossSpec& loss, const Tensor& output, const Tensor& label,
              const Evaluator& evaluator) {
  Graph graph;
  graph.file = "loss";
  graph.AddInput(loss.label, label.dtype(), label.shape());
  std::string name = graph.FreshName(kOutput);
  graph.outputs = {graph.AddInput(name, output.dtype(), output.shape())};
  Value* value = AddLoss(graph, {loss.kind, loss.label, name});
  Tensor result =
      Run(graph, value, {{loss.label, label}, {name, output}}, evaluator);
  return result.data<float>()[0];
}

int64_t CountLabels(const LossSpec& loss, const Tensor& label) {
  if (!Ignores(loss)) return label.size();
  int64_t count = 0;
  for (int64_t i = 0; i < label.size(); ++i) {
    count += IntAt(label, i) != kIgnoredLabel;
  }
  return count;
}

int64_t CountHits(const LossSpec& loss, const Tensor& output,
                  const Tensor& label, const Evaluator& evaluator) {
  const LossKind& kind = *FindLoss(loss.kind);
  Graph graph;
  Builder b(graph);
  Value* y = graph.AddInput(kOutput, output.dtype(), output.shape());
  Value* wanted = graph.AddInput("label", label.dtype(), label.shape());
  // No output is the class that is ignored.
  if (Ignores(loss)) wanted = b.Cast(wanted, kind.label);
  Tensor right = Run(graph, kind.hits(b, y, wanted),
                     {{kOutput, output}, {"label", label}}, evaluator);
  int64_t hits = 0;
  for (int64_t i = 0; i < right.size(); ++i) hits += IntAt(right, i);
  return hits;
}

}  // namespace onnx_fp8
