// SPDX-License-Identifier: Apache-2.0
#include "training/loss.h"

#include "graph/builder.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

constexpr char kOutput[] = "output:";

Value* FindOutput(const Graph& graph, const std::string& name) {
  std::string listed;
  for (Value* value : graph.outputs) {
    if (value->name == name) return value;
    listed += (listed.empty() ? "" : ", ") + value->name;
  }
  Fail("[", graph.file, "] expected an output named \"", name,
       "\"; the model has ", listed);
}

Value* Logits(const Graph& graph, const LossSpec& spec) {
  Check(!graph.outputs.empty(), "[", graph.file, "] expected an output");
  Value* logits = spec.logits.empty() ? graph.outputs[0]
                                      : FindOutput(graph, spec.logits);
  Check(IsFloat(logits->dtype), "[", graph.file, "] expected output \"",
        logits->name, "\" to be of a float type, got ", Name(logits->dtype));
  return logits;
}

Value* AddLabel(Graph& graph, const LossSpec& spec, DType dtype,
                const Shape& shape) {
  Check(graph.Find(spec.label) == nullptr, "[", graph.file, "] label name \"",
        spec.label, "\" is taken by the model; choose another with --label");
  return graph.AddInput(spec.label, dtype, shape);
}

// Mean over labels >= 0 … of −log softmax(x)[label]; PyTorch's cross_entropy
// with ignore_index −100.
Value* CrossEntropy(Builder& b, const LossSpec& spec) {
  Value* x = Logits(b.graph(), spec);
  Check(x->rank() >= 1, "[", b.graph().file, "] expected logits (…, classes), "
        "got a scalar \"", x->name, "\"");
  Shape labels_shape(x->shape->begin(), x->shape->end() - 1);
  Value* labels = AddLabel(b.graph(), spec, DType::kInt64, labels_shape);
  int64_t n = NumElements(labels_shape);
  Value* x2 = b.Reshape(b.Cast(x, DType::kFloat), {n, x->dim(-1)});
  Value* labels1 = b.Reshape(labels, {n});
  return b.Ops("SoftmaxCrossEntropyLoss", {x2, labels1}, 2,
               {{"reduction", std::string("mean")},
                {"ignore_index", int64_t{-100}}})[0];
}

Value* Mean(Builder& b, Value* x) {
  return b.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
}

Value* Mse(Builder& b, const LossSpec& spec) {
  Value* x = b.Cast(Logits(b.graph(), spec), DType::kFloat);
  Value* label = AddLabel(b.graph(), spec, DType::kFloat, *x->shape);
  Value* difference = b.Sub(x, label);
  return Mean(b, b.Mul(difference, difference));
}

// max(x, 0) − x·y + log(1 + exp(−|x|)): PyTorch's form, which can't overflow.
Value* BceWithLogits(Builder& b, const LossSpec& spec) {
  Value* x = b.Cast(Logits(b.graph(), spec), DType::kFloat);
  Value* y = AddLabel(b.graph(), spec, DType::kFloat, *x->shape);
  Value* decay = b.Op("Exp", {b.Neg(b.Op("Abs", {x}))});
  Value* tail = b.Op("Log", {b.Add(decay, b.Scalar(1, x))});
  return Mean(b, b.Add(b.Sub(b.Op("Relu", {x}), b.Mul(x, y)), tail));
}

Value* FromOutput(Builder& b, const std::string& name) {
  Value* value = FindOutput(b.graph(), name);
  Check(IsFloat(value->dtype) && NumElements(*value->shape) == 1, "[",
        b.graph().file, "] expected output \"", name,
        "\" to be one float, got ", Name(value->dtype), " ",
        ToString(*value->shape));
  // A value of its own: the output keeps its name and shape.
  return b.Op("Identity", {b.Reshape(b.Cast(value, DType::kFloat), {})});
}

}  // namespace

Value* AddLoss(Graph& graph, const LossSpec& spec) {
  Builder b(graph, "loss.");
  Value* loss = nullptr;
  if (spec.kind == "cross_entropy") {
    loss = CrossEntropy(b, spec);
  } else if (spec.kind == "mse") {
    loss = Mse(b, spec);
  } else if (spec.kind == "bce_with_logits") {
    loss = BceWithLogits(b, spec);
  } else if (spec.kind.starts_with(kOutput)) {
    loss = FromOutput(b, spec.kind.substr(sizeof kOutput - 1));
  } else {
    Fail("expected loss cross_entropy, mse, bce_with_logits or output:NAME, "
         "got \"", spec.kind, "\"");
  }
  graph.Rename(loss, graph.FreshName("loss"));
  return loss;
}

}  // namespace onnx_fp8
