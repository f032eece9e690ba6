// SPDX-License-Identifier: Apache-2.0
#include "training/loss.h"

#include <algorithm>

#include "graph/builder.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kIgnoredLabel = -100;  // PyTorch's default
constexpr std::string_view kOutputKind = "output:";

std::string OutputNames(const Graph& graph) {
  std::string names;
  for (const Value* output : graph.outputs) {
    names += (names.empty() ? "" : ", ") + output->name;
  }
  return names.empty() ? "none" : names;
}

// The graph output of that name; the first for "".
Value* FindOutput(const Graph& graph, std::string_view name) {
  for (Value* output : graph.outputs) {
    if (!name.empty() && output->name != name) continue;
    Check(IsFloat(output->dtype), "[", graph.file,
          "] expected a float output for the loss, got ", Name(output->dtype),
          " \"", output->name, "\"; outputs: ", OutputNames(graph));
    return output;
  }
  Fail("[", graph.file, "] expected a graph output \"", name,
       "\" for the loss, got outputs: ", OutputNames(graph));
}

// The label as a graph input. If the model has an input of that name, it is
// used if it fits.
Value* Label(Graph& graph, const std::string& name, DType dtype,
             const std::optional<Shape>& shape) {
  Value* label = graph.Find(name);
  if (!label) return graph.AddInput(name, dtype, shape);
  Check(label->is_input, "[", graph.file,
        "] expected a name for the label "
        "that the model does not use, got \"",
        name, "\"");
  bool fits =
      dtype == DType::kInt64 ? IsInteger(label->dtype) : IsFloat(label->dtype);
  Check(fits, "[", graph.file, "] expected ", Name(dtype), " labels, got ",
        Name(label->dtype), " in input \"", name, "\"");
  bool same = !shape || !label->shape || label->shape->size() == shape->size();
  for (size_t i = 0; same && shape && label->shape && i < shape->size(); ++i) {
    int64_t a = (*shape)[i], b = (*label->shape)[i];
    same = a == b || a < 0 || b < 0;
  }
  Check(same, "[", graph.file, "] expected labels of shape ",
        shape ? ToString(*shape) : "", ", got ",
        label->shape ? ToString(*label->shape) : "", " in input \"", name,
        "\"");
  return label;
}

Value* MeanOfAll(Builder& b, Value* x) {
  return b.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
}

// logits (…, C), labels (…): as (N, C) and (N).
Value* CrossEntropy(Builder& b, Value* logits, const LossSpec& spec) {
  Graph& graph = b.graph();
  std::optional<Shape> shape = logits->shape;
  if (shape) {
    Check(!shape->empty(), "[", graph.file,
          "] expected logits (…, C) for cross_entropy, got the scalar \"",
          logits->name, "\"; outputs: ", OutputNames(graph));
    shape->pop_back();
  }
  Value* labels = Label(graph, spec.label, DType::kInt64, shape);
  Value* rows =
      b.Op("Flatten", {b.Cast(logits, DType::kFloat)}, {{"axis", int64_t{-1}}});
  Value* flat = b.Op("Reshape", {b.Cast(labels, DType::kInt64), b.Ints({-1})});
  return b.Op(
      "SoftmaxCrossEntropyLoss", {rows, flat},
      {{"ignore_index", kIgnoredLabel}, {"reduction", std::string("mean")}});
}

Value* MeanSquare(Builder& b, Value* y, const LossSpec& spec) {
  Value* label = Label(b.graph(), spec.label, DType::kFloat, y->shape);
  Value* miss = b.Sub(b.Cast(y, DType::kFloat), b.Cast(label, DType::kFloat));
  return MeanOfAll(b, b.Mul(miss, miss));
}

Value* BinaryCrossEntropy(Builder& b, Value* y, const LossSpec& spec) {
  Value* label = b.Cast(Label(b.graph(), spec.label, DType::kFloat, y->shape),
                        DType::kFloat);
  y = b.Cast(y, DType::kFloat);
  Value* yes = b.Mul(label, b.Op("Softplus", {b.Neg(y)}));
  Value* no = b.Mul(b.Sub(b.Scalar(1, y), label), b.Op("Softplus", {y}));
  return MeanOfAll(b, b.Add(yes, no));
}

Value* OwnLoss(Builder& b, std::string_view name) {
  Value* output = FindOutput(b.graph(), name);
  Check(!output->concrete() || NumElements(*output->shape) == 1, "[",
        b.graph().file, "] expected a loss of one element, got \"", name,
        "\" of shape ", output->shape ? ToString(*output->shape) : "",
        "; outputs: ", OutputNames(b.graph()));
  return b.Reshape(b.Cast(output, DType::kFloat), {});
}

}  // namespace

Value* AddLoss(Graph& graph, const LossSpec& spec) {
  Builder b(graph, "loss.");
  Value* loss = nullptr;
  if (spec.kind == "cross_entropy") {
    loss = CrossEntropy(b, FindOutput(graph, spec.logits), spec);
  } else if (spec.kind == "mse") {
    loss = MeanSquare(b, FindOutput(graph, spec.logits), spec);
  } else if (spec.kind == "bce_with_logits") {
    loss = BinaryCrossEntropy(b, FindOutput(graph, spec.logits), spec);
  } else if (spec.kind.starts_with(kOutputKind)) {
    loss = OwnLoss(b, std::string_view(spec.kind).substr(kOutputKind.size()));
  } else {
    Fail("[", graph.file,
         "] expected the loss cross_entropy, mse, "
         "bce_with_logits or output:NAME, got \"",
         spec.kind, "\"; outputs: ", OutputNames(graph));
  }
  if (loss->name == "loss") return loss;
  // The model's own loss keeps its name; ours gets the name that it should
  // have.
  bool own = std::ranges::find(graph.outputs, loss) != graph.outputs.end();
  if (own || !loss->producer) loss = b.Op("Identity", {loss});
  graph.Rename(loss, graph.FreshName("loss"));
  return loss;
}

}  // namespace onnx_fp8
