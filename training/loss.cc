// SPDX-License-Identifier: Apache-2.0
#include "training/loss.h"

#include <algorithm>

#include "base/check.h"
#include "graph/builder.h"

namespace onnx_fp8 {
namespace {

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
Value* CrossEntropy(Builder& b, Value* logits, Value* label) {
  Value* rows = b.Op("Flatten", {logits}, {{"axis", int64_t{-1}}});
  Value* flat = b.Op("Reshape", {label, b.Ints({-1})});
  return b.Op(
      "SoftmaxCrossEntropyLoss", {rows, flat},
      {{"ignore_index", kIgnoredLabel}, {"reduction", std::string("mean")}});
}

Value* LargestClass(Builder& b, Value* logits, Value* label) {
  Value* best = b.Op("ArgMax", {logits},
                     {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}});
  return b.Op("Equal", {best, label});
}

Value* MeanSquare(Builder& b, Value* y, Value* label) {
  Value* miss = b.Sub(y, label);
  return MeanOfAll(b, b.Mul(miss, miss));
}

// The form label softplus(-y) + (1 - label) softplus(y) neither overflows nor
// cancels.
Value* BinaryCrossEntropy(Builder& b, Value* y, Value* label) {
  Value* yes = b.Mul(label, b.Op("Softplus", {b.Neg(y)}));
  Value* no = b.Mul(b.Sub(b.Scalar(1, y), label), b.Op("Softplus", {y}));
  return MeanOfAll(b, b.Add(yes, no));
}

Value* RightSign(Builder& b, Value* y, Value* label) {
  Value* positive = b.Op("Greater", {y, b.Scalar(0, y)});
  Value* wanted = b.Op("Greater", {label, b.Scalar(0.5, label)});
  return b.Op("Equal", {positive, wanted});
}

// A loss is a row of this table and the functions that the row names:
//   cross_entropy    -log softmax(logits)[label], mean over labels that count
//   mse              (y - label)², mean over all elements
//   bce_with_logits  cross entropy of sigmoid(y), mean over all elements
constexpr LossKind kLosses[] = {
    {"cross_entropy", DType::kInt64, CrossEntropy, LargestClass, true},
    {"mse", DType::kFloat, MeanSquare},
    {"bce_with_logits", DType::kFloat, BinaryCrossEntropy, RightSign},
};

Value* TableLoss(Builder& b, const LossKind& kind, const LossSpec& spec) {
  Graph& graph = b.graph();
  Value* y = FindOutput(graph, spec.logits);
  std::optional<Shape> shape = y->shape;
  if (shape && kind.label == DType::kInt64) {
    Check(!shape->empty(), "[", graph.file, "] expected logits (…, C) for ",
          kind.name, ", got the scalar \"", y->name,
          "\"; outputs: ", OutputNames(graph));
    shape->pop_back();
  }
  Value* label = Label(graph, spec.label, kind.label, shape);
  label = b.Cast(label, kind.label);
  return kind.build(b, b.Cast(y, DType::kFloat), label);
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

const LossKind* FindLoss(std::string_view kind) {
  auto row = std::ranges::find(kLosses, kind, &LossKind::name);
  return row == std::end(kLosses) ? nullptr : row;
}

std::optional<std::string> OwnOutput(std::string_view kind) {
  if (!kind.starts_with(kOutputKind)) return std::nullopt;
  return std::string(kind.substr(kOutputKind.size()));
}

std::string LossNames() {
  std::string names;
  for (const LossKind& row : kLosses) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names + " or output:NAME";
}

Value* AddLoss(Graph& graph, const LossSpec& spec) {
  Builder b(graph, "loss.");
  const LossKind* kind = FindLoss(spec.kind);
  std::optional<std::string> own_output = OwnOutput(spec.kind);
  Check(kind || own_output, "[", graph.file, "] expected the loss ",
        LossNames(), ", got \"", spec.kind,
        "\"; outputs: ", OutputNames(graph));
  Value* loss = kind ? TableLoss(b, *kind, spec) : OwnLoss(b, *own_output);
  if (loss->name == "loss") return loss;
  // The model's own loss keeps its name; ours gets the name that it should
  // have.
  bool own = std::ranges::find(graph.outputs, loss) != graph.outputs.end();
  if (own || !loss->producer) loss = b.Op("Identity", {loss});
  graph.Rename(loss, graph.FreshName("loss"));
  return loss;
}

}  // namespace onnx_fp8
