// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kOutputKind = "output:";

std::string OutputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value* output : graph.outputs) names.push_back(output->name);
  return names.empty() ? "none" : Joined(names);
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
// used if its type fits.
Value* Label(Graph& graph, const std::string& name, const LossKind& kind,
             const std::optional<LabelType>& type,
             const std::optional<Shape>& otherwise) {
  Value* label = graph.Find(name);
  if (!label && type) label = graph.AddInput(name, type->dtype, type->shape);
  if (!label) return graph.AddInput(name, kind.label, otherwise);
  Check(label->is_input, "[", graph.file,
        "] expected a name for the label "
        "that the model does not use, got \"",
        name, "\"");
  const bool floats = kind.label != DType::kInt64 || kind.soft;
  const bool fits = (kind.label == DType::kInt64 && IsInteger(label->dtype)) ||
                    (floats && IsFloat(label->dtype));
  Check(fits, "[", graph.file, "] expected ", Name(kind.label), " labels, got ",
        Name(label->dtype), " in input \"", name, "\"");
  return label;
}

// The type of a label, if its shape is known.
std::optional<LabelType> TypeOf(const Value* label) {
  if (!label || !label->is_input || !label->shape) return std::nullopt;
  return LabelType{label->dtype, *label->shape};
}

Value* MeanOfAll(Builder& b, Value* x) {
  return b.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
}

Value* SumOfAll(Builder& b, Value* x) {
  return b.Op("ReduceSum", {x}, {{"keepdims", int64_t{0}}});
}

// --- losses of classes: output (N, C, D…), label (N, D…)

int64_t IgnoredOf(const LossSpec& spec) {
  return spec.ignore_index.value_or(kIgnoredLabel);
}

// Whether each label counts.
Value* Counts(Builder& b, const LossSpec& spec, Value* label) {
  Value* classes = b.Cast(label, DType::kInt64);
  return b.Op("Not", {b.Op("Equal", {classes, b.Int(IgnoredOf(spec))})});
}

// The weights of the classes, null if all are 1.
Value* WeightsOf(Builder& b, const LossSpec& spec, const Value& logits) {
  if (spec.class_weights.empty()) return nullptr;
  const auto n = static_cast<int64_t>(spec.class_weights.size());
  const bool fits = !logits.shape || logits.dim(1) < 0 || logits.dim(1) == n;
  if (!fits) {
    throw OptionError(Concat("[", b.graph().file,
                             "] `class_weights`: expected ", logits.dim(1),
                             " numbers, one for each class, got ", n));
  }
  return b.Constant(Tensor::From<float>({n}, spec.class_weights));
}

// Weights (C) beside values (N, C, D…).
Value* BesideClasses(Builder& b, Value* weights, const Value& logits) {
  Shape shape(logits.shape->size(), 1);
  shape[1] = weights->dim(0);
  return b.Reshape(weights, shape);
}

Attributes MeanOverLabels(const LossSpec& spec) {
  return {{"ignore_index", IgnoredOf(spec)},
          {"reduction", std::string("mean")}};
}

std::vector<Value*> WithWeights(Value* scores, Value* label, Value* weights) {
  std::vector<Value*> inputs = {scores, label};
  if (weights) inputs.push_back(weights);
  return inputs;
}

// Σ over classes of w log p, by sample.
Value* SumOverClasses(Builder& b, Value* log_prob, Value* factors) {
  if (factors) log_prob = b.Mul(log_prob, factors);
  return b.ReduceSum(log_prob, {1}, false);
}

// Mean over samples of -Σ t w log p. Smoothed, t is mixed with 1 / C.
Value* SoftCrossEntropy(Builder& b, const LossSpec& spec,
                        const LossOperands& of, Value* weights) {
  Value* log_prob = b.Op("LogSoftmax", {of.output}, {{"axis", int64_t{1}}});
  const double smoothing = spec.label_smoothing.value_or(0);
  Value* target = of.label;
  if (smoothing > 0) {
    const auto classes = static_cast<double>(of.output->dim(1));
    target = b.Add(b.Mul(target, b.Scalar(1 - smoothing, target)),
                   b.Scalar(smoothing / classes, target));
  }
  if (weights) {
    target = b.Mul(target, BesideClasses(b, weights, *of.output));
  }
  return b.Neg(MeanOfAll(b, SumOverClasses(b, log_prob, target)));
}

// The mean of -w log p of the labels, mixed with the mean over all classes.
Value* CrossEntropyOf(Builder& b, const LossSpec& spec,
                      const LossOperands& of) {
  Value* weights = WeightsOf(b, spec, *of.output);
  if (of.soft) return SoftCrossEntropy(b, spec, of, weights);
  const std::vector<Value*> inputs = WithWeights(of.output, of.label, weights);
  const double smoothing = spec.label_smoothing.value_or(0);
  if (smoothing == 0) {
    return b.Op("SoftmaxCrossEntropyLoss", inputs, MeanOverLabels(spec));
  }
  std::vector<Value*> made =
      b.Ops("SoftmaxCrossEntropyLoss", inputs, 2, MeanOverLabels(spec));
  Value *hard = made[0], *log_prob = made[1];
  if (weights) weights = BesideClasses(b, weights, *of.output);
  Value* even = b.Neg(SumOverClasses(b, log_prob, weights));
  Value* zero = b.Scalar(0, even);
  even = SumOfAll(b, b.Op("Where", {Counts(b, spec, of.label), even, zero}));
  // If no label counts, `hard` is not a number.
  Value* total = b.Cast(CountedLabels(b, spec, of.label), DType::kFloat);
  Value* none = b.Op("Equal", {total, zero});
  total = b.Op("Where", {none, b.Scalar(1, total), total});
  const double share = smoothing / static_cast<double>(of.output->dim(1));
  return b.Add(b.Mul(hard, b.Scalar(1 - smoothing, hard)),
               b.Mul(b.Div(even, total), b.Scalar(share, hard)));
}

// The output holds logarithms of probabilities.
Value* NegativeLogLikelihood(Builder& b, const LossSpec& spec,
                             const LossOperands& of) {
  return b.Op("NegativeLogLikelihoodLoss",
              WithWeights(of.output, of.label, WeightsOf(b, spec, *of.output)),
              MeanOverLabels(spec));
}

Value* LargestClass(Builder& b, const LossOperands& of) {
  const Attributes by_class = {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}};
  Value* best = b.Op("ArgMax", {of.output}, by_class);
  return b.Op("Equal", {best, of.soft ? b.Op("ArgMax", {of.label}, by_class)
                                      : of.label});
}

// --- losses of numbers: output and label of one shape

Value* Difference(Builder& b, const LossOperands& of) {
  return b.Sub(of.output, of.label);
}

Value* MeanSquare(Builder& b, const LossSpec&, const LossOperands& of) {
  Value* miss = Difference(b, of);
  return MeanOfAll(b, b.Mul(miss, miss));
}

Value* MeanDistance(Builder& b, const LossSpec&, const LossOperands& of) {
  return MeanOfAll(b, b.Op("Abs", {Difference(b, of)}));
}

// With c = min(|miss|, delta): c (|miss| - c / 2).
Value* Huber(Builder& b, const LossSpec& spec, const LossOperands& of) {
  Value* miss = b.Op("Abs", {Difference(b, of)});
  Value* near = b.Op("Min", {miss, b.Scalar(spec.delta.value_or(1), miss)});
  Value* rest = b.Sub(miss, b.Mul(near, b.Scalar(0.5, near)));
  return MeanOfAll(b, b.Mul(near, rest));
}

// The sum of t (log t - y) over all elements, divided by the samples. A target
// of 0 adds 0.
Value* Divergence(Builder& b, const LossSpec&, const LossOperands& of) {
  Value* target = of.label;
  Value* none = b.Op("Equal", {target, b.Scalar(0, target)});
  Value* safe = b.Op("Where", {none, b.Scalar(1, target), target});
  Value* own = b.Mul(target, b.Op("Log", {safe}));
  Value* sum = SumOfAll(b, b.Sub(own, b.Mul(target, of.output)));
  const auto samples = of.output->rank() > 0 ? of.output->dim(0) : 1;
  return b.Mul(sum, b.Scalar(1 / static_cast<double>(samples), sum));
}

// The form label softplus(-y) + (1 - label) softplus(y) neither overflows nor
// cancels.
Value* BinaryCrossEntropy(Builder& b, const LossSpec&, const LossOperands& of) {
  Value *y = of.output, *label = of.label;
  Value* yes = b.Mul(label, b.Op("Softplus", {b.Neg(y)}));
  Value* no = b.Mul(b.Sub(b.Scalar(1, y), label), b.Op("Softplus", {y}));
  return MeanOfAll(b, b.Add(yes, no));
}

// -(t log p + (1 - t) log(1 - p)) with logarithms of at least -100. The slope
// is PyTorch's, (p - t) / max(p (1 - p), 1e-12), also where the logarithms end:
// the loss plus slope · (p - p), of which only the last p has no gradient.
Value* BinaryOfProbabilities(Builder& b, const LossSpec&,
                             const LossOperands& of) {
  Value* p = b.Ours("Detach", {of.output});
  Value* target = of.label;
  Value* one = b.Scalar(1, p);
  Value* other = b.Sub(one, p);
  auto log = [&](Value* x) {
    return b.Op("Max", {b.Op("Log", {x}), b.Scalar(-100, x)});
  };
  Value* losses = b.Neg(
      b.Add(b.Mul(target, log(p)), b.Mul(b.Sub(one, target), log(other))));
  Value* scale = b.Op("Max", {b.Mul(p, other), b.Scalar(1e-12, p)});
  Value* slope = b.Div(b.Sub(p, target), scale);
  // What is no probability has no loss, and no slope either.
  slope = b.Add(slope, b.Mul(losses, b.Scalar(0, p)));
  return MeanOfAll(b, b.Add(losses, b.Mul(slope, b.Sub(of.output, p))));
}

Value* RightSide(Builder& b, const LossOperands& of, double middle) {
  Value* positive = b.Op("Greater", {of.output, b.Scalar(middle, of.output)});
  Value* wanted = b.Op("Greater", {of.label, b.Scalar(0.5, of.label)});
  return b.Op("Equal", {positive, wanted});
}

Value* RightSign(Builder& b, const LossOperands& of) {
  return RightSide(b, of, 0);
}

Value* RightProbability(Builder& b, const LossOperands& of) {
  return RightSide(b, of, 0.5);
}

constexpr std::string_view kOfClasses =
    "`class_axis`, `class_weights`, `ignore_index`";
constexpr std::string_view kOfCrossEntropy =
    "`class_axis`, `class_weights`, `ignore_index`, `label_smoothing`";

// A loss is a row of this table and the functions that the row names:
//   cross_entropy    -log softmax(logits)[label], mean over labels that count
//   nll              -y[label], the same mean: y are log-probabilities
//   mse              (y - label)², mean over all elements
//   l1               |y - label|, mean over all elements
//   huber            squares up to delta, then lines, mean over all elements
//   kl_div           label (log label - y), sum divided by the samples
//   bce              cross entropy of y, mean over all elements
//   bce_with_logits  cross entropy of sigmoid(y), mean over all elements
constexpr LossKind kLosses[] = {
    {"cross_entropy", DType::kInt64, kOfCrossEntropy, CrossEntropyOf,
     LargestClass, true, true},
    {"nll", DType::kInt64, kOfClasses, NegativeLogLikelihood, LargestClass,
     true},
    {"mse", DType::kFloat, "", MeanSquare},
    {"l1", DType::kFloat, "", MeanDistance},
    {"huber", DType::kFloat, "`delta`", Huber},
    {"kl_div", DType::kFloat, "", Divergence, nullptr, false, false, true},
    {"bce", DType::kFloat, "", BinaryOfProbabilities, RightProbability},
    {"bce_with_logits", DType::kFloat, "", BinaryCrossEntropy, RightSign},
};

bool Takes(const LossKind& kind, std::string_view option) {
  return kind.options.find(option) != std::string_view::npos;
}

bool OfClasses(const LossKind& kind) { return kind.label == DType::kInt64; }

void CheckHasClasses(const Graph& graph, const LossKind& kind,
                     const Value& logits) {
  Check(!logits.shape || !logits.shape->empty(), "[", graph.file,
        "] expected logits (…, C) for ", kind.name, ", got the scalar \"",
        logits.name, "\"; outputs: ", OutputNames(graph));
}

// The axis of the classes; the last one if not even the rank is known.
int64_t AxisOf(const LossSpec& spec, const Graph& graph, const Value& logits,
               const std::optional<LabelType>& label) {
  if (!logits.shape) return 0;
  return ClassAxis(spec, graph.file, logits, label);
}

Value* TableLoss(Builder& b, const LossKind& kind, LossSpec spec,
                 const std::optional<LabelType>& type) {
  Graph& graph = b.graph();
  Value* y = FindOutput(graph, spec.logits);
  std::optional<Shape> shape = y->shape;
  if (OfClasses(kind)) {
    CheckHasClasses(graph, kind, *y);
    const std::optional<LabelType> known =
        type ? type : TypeOf(graph.Find(spec.label));
    if (shape) {
      spec.class_axis = ClassAxis(spec, graph.file, *y, known);
      shape = WithoutAxis(*shape, *spec.class_axis);
    }
  }
  Value* label = Label(graph, spec.label, kind, type, shape);
  LossOperands of = LossOperandsOf(b, spec, y, label);
  of.output = b.Cast(of.output, DType::kFloat);
  of.label = b.Cast(of.label, of.soft ? DType::kFloat : kind.label);
  return kind.build(b, spec, of);
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

bool IsLikelihood(const LossSpec& loss) {
  const LossKind* kind = FindLoss(loss.kind);
  return kind && kind->likelihood && loss.class_weights.empty() &&
         loss.label_smoothing.value_or(0) == 0;
}

std::optional<std::string> OwnOutput(std::string_view kind) {
  if (!kind.starts_with(kOutputKind)) return std::nullopt;
  return std::string(kind.substr(kOutputKind.size()));
}

bool IsLossFile(std::string_view kind) {
  return kind.ends_with(".onnx") && !OwnOutput(kind);
}

std::string LossNames() {
  std::string names;
  for (const LossKind& row : kLosses) names += std::string(row.name) + ", ";
  return names + "output:NAME or FILE.onnx";
}

void CheckLossOptions(const LossSpec& spec) {
  const LossKind* kind = FindLoss(spec.kind);
  auto require = [&](bool given, std::string_view option) {
    if (!given || (kind && Takes(*kind, option))) return;
    std::string losses;
    for (const LossKind& row : kLosses) {
      if (!Takes(row, option)) continue;
      losses += (losses.empty() ? "" : " and ") + std::string(row.name);
    }
    throw OptionError(Concat(option, " is an option of the loss ", losses,
                             ", got ", spec.kind.empty() ? "none" : spec.kind));
  };
  require(spec.class_axis.has_value(), "`class_axis`");
  require(spec.ignore_index.has_value(), "`ignore_index`");
  require(spec.label_smoothing.has_value(), "`label_smoothing`");
  require(!spec.class_weights.empty(), "`class_weights`");
  require(spec.delta.has_value(), "`delta`");
  const double smoothing = spec.label_smoothing.value_or(0);
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw OptionError(
        Concat("`label_smoothing`: expected 0 to 1, got ", smoothing));
  }
  const double delta = spec.delta.value_or(1);
  if (!(delta > 0 && std::isfinite(delta))) {
    throw OptionError(
        Concat("`delta`: expected a number above 0, got ", delta));
  }
  for (float weight : spec.class_weights) {
    if (weight >= 0 && std::isfinite(weight)) continue;
    throw OptionError(Concat(
        "`class_weights`: expected numbers of at least 0, got ", weight));
  }
}

LossSpec ResolveLoss(const Graph& graph, const LossSpec& spec,
                     const std::optional<LabelType>& label) {
  const LossKind* kind = FindLoss(spec.kind);
  if (!kind) return spec;
  LossSpec resolved = spec;
  const Value* logits = FindOutput(graph, spec.logits);
  resolved.logits = logits->name;
  if (!OfClasses(*kind) || !logits->shape) return resolved;
  CheckHasClasses(graph, *kind, *logits);
  resolved.class_axis =
      ClassAxis(spec, graph.file, *logits,
                label ? label : TypeOf(graph.Find(spec.label)));
  return resolved;
}

LossOperands LossOperandsOf(Builder& b, const LossSpec& spec, Value* output,
                            Value* label) {
  if (!OfClasses(*FindLoss(spec.kind))) {
    return {output, LabelLike(b, *output, label)};
  }
  if (IsFloat(label->dtype) && spec.ignore_index) {
    throw OptionError(Concat("[", b.graph().file,
                             "] `ignore_index`: expected labels that are "
                             "numbers of classes, got probabilities in \"",
                             label->name, "\""));
  }
  return ArrangeClasses(b, AxisOf(spec, b.graph(), *output, TypeOf(label)),
                        output, label);
}

Value* CountedLabels(Builder& b, const LossSpec& spec, Value* label) {
  const LossKind& kind = *FindLoss(spec.kind);
  if (!OfClasses(kind)) {
    const bool by_sample = kind.by_sample && label->rank() > 0;
    return b.Int(by_sample ? label->dim(0) : NumElements(*label->shape));
  }
  if (IsFloat(label->dtype)) {
    const int64_t classes = label->dim(spec.class_axis.value_or(-1));
    return b.Int(NumElements(*label->shape) / classes);
  }
  Value* counts = Counts(b, spec, label);
  if (spec.class_weights.empty()) {
    return SumOfAll(b, b.Cast(counts, DType::kInt64));
  }
  Value* weights = b.Constant(Tensor::From<float>(
      {std::ssize(spec.class_weights)}, spec.class_weights));
  Value* classes = b.Cast(label, DType::kInt64);
  Value* zero = b.Int(0);
  Value* own =
      b.Op("Gather", {weights, b.Op("Where", {counts, classes, zero})});
  return SumOfAll(b, b.Op("Where", {counts, own, b.Scalar(0, own)}));
}

bool MayCountNone(const LossSpec& spec, DType label) {
  const LossKind* kind = FindLoss(spec.kind);
  return kind && OfClasses(*kind) && IsInteger(label);
}

Value* AddLoss(Graph& graph, const LossSpec& spec,
               const std::optional<LabelType>& label) {
  Builder b(graph, "loss.");
  const LossKind* kind = FindLoss(spec.kind);
  std::optional<std::string> own_output = OwnOutput(spec.kind);
  Check(kind || own_output, "[", graph.file, "] expected the loss ",
        LossNames(), ", got \"", spec.kind,
        "\"; outputs: ", OutputNames(graph));
  Value* loss =
      kind ? TableLoss(b, *kind, spec, label) : OwnLoss(b, *own_output);
  if (loss->name == "loss") return loss;
  // The model's own loss keeps its name; ours gets the name that it should
  // have.
  bool own = std::ranges::find(graph.outputs, loss) != graph.outputs.end();
  if (own || !loss->producer) loss = b.Op("Identity", {loss});
  graph.Rename(loss, graph.FreshName("loss"));
  return loss;
}

}  // namespace onnx_fp8
