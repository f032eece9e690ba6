// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss_values.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

constexpr char kOutput[] = "output";

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

// A graph of one output and its label.
struct Pair {
  Pair(const LossSpec& loss, const Tensor& output, const Tensor& label)
      : spec(loss), b(graph), feeds{{loss.label, label}} {
    graph.file = "loss";
    wanted = graph.AddInput(loss.label, label.dtype(), label.shape());
    spec.logits = graph.FreshName(kOutput);
    y = graph.AddInput(spec.logits, output.dtype(), output.shape());
    graph.outputs = {y};
    feeds[spec.logits] = output;
  }

  LossSpec spec;
  Graph graph;
  Builder b;
  TensorMap feeds;
  Value* y;
  Value* wanted;
};

// Whether some labels may be ignored.
bool Ignores(const LossSpec& loss, const Tensor& label) {
  return MayCountNone(loss, label.dtype());
}

int64_t AxisOfClasses(const Pair& pair, const Tensor& label) {
  return ClassAxis(pair.spec, pair.graph.file, *pair.y,
                   LabelType{label.dtype(), label.shape()});
}

bool OfClasses(const LossSpec& loss) {
  return FindLoss(loss.kind)->label == DType::kInt64;
}

}  // namespace

double LossOf(const LossSpec& loss, const Tensor& output, const Tensor& label,
              const Evaluator& evaluator) {
  Pair pair(loss, output, label);
  Value* value = AddLoss(pair.graph, pair.spec);
  return Run(pair.graph, value, pair.feeds, evaluator).data<float>()[0];
}

double WeightOfLabels(const LossSpec& loss, const Tensor& output,
                      const Tensor& label, const Evaluator& evaluator) {
  Pair pair(loss, output, label);
  Value* counted = CountedLabels(pair.b, pair.spec, pair.wanted);
  return DoubleAt(Run(pair.graph, counted, pair.feeds, evaluator), 0);
}

int64_t CountLabels(const LossSpec& loss, const Tensor& output,
                    const Tensor& label) {
  if (!Ignores(loss, label)) {
    if (!OfClasses(loss)) return label.size();
    Pair pair(loss, output, label);
    return NumElements(WithoutAxis(label.shape(), AxisOfClasses(pair, label)));
  }
  const int64_t ignored = loss.ignore_index.value_or(kIgnoredLabel);
  int64_t count = 0;
  for (int64_t i = 0; i < label.size(); ++i) {
    count += IntAt(label, i) != ignored;
  }
  return count;
}

int64_t CountHits(const LossSpec& loss, const Tensor& output,
                  const Tensor& label, const Evaluator& evaluator) {
  Pair pair(loss, output, label);
  const LossKind& kind = *FindLoss(loss.kind);
  Value* wanted = pair.wanted;
  if (IsInteger(label.dtype())) wanted = pair.b.Cast(wanted, kind.label);
  Value* hits =
      kind.hits(pair.b, LossOperandsOf(pair.b, pair.spec, pair.y, wanted));
  if (Ignores(loss, label)) {
    // An output may be the class that is ignored.
    Value* ignored = pair.b.Int(loss.ignore_index.value_or(kIgnoredLabel));
    Value* counts = pair.b.Op("Not", {pair.b.Op("Equal", {wanted, ignored})});
    hits = pair.b.Op("And", {hits, pair.b.Reshape(counts, *hits->shape)});
  }
  Tensor right = Run(pair.graph, hits, pair.feeds, evaluator);
  int64_t count = 0;
  for (int64_t i = 0; i < right.size(); ++i) count += IntAt(right, i);
  return count;
}

bool HasTokens(const LossSpec& loss, const Tensor& output,
               const Tensor& label) {
  if (!OfClasses(loss) || output.rank() < 3) return false;
  Pair pair(loss, output, label);
  return AxisOfClasses(pair, label) == output.rank() - 1;
}

}  // namespace onnx_fp8
