// SPDX-License-Identifier: Apache-2.0
//
// The mean loss over classes, and its gradients. `ignore_index` is the label of
// samples that do not count.
#include <string>

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// ---- the loss of scores (N,C)

// The mean of lse - scores[label] over the labels that count, and lse (N), the
// logarithm of each row's Σ e^scores.
constexpr char kCrossEntropy[] = R"((scores, labels) => (loss, lse) {
  loss = SoftmaxCrossEntropyLoss <ignore_index: int = @ignore_index, reduction = "mean"> (scores, labels)
  axes = Constant <value_ints = [1]> ()
  largest = ReduceMax (scores, axes)
  less = Sub (scores, largest)
  powers = Exp (less)
  total = ReduceSum (powers, axes)
  log_total = Log (total)
  lse_2 = Add (largest, log_total)
  lse = Squeeze (lse_2, axes)
})";

void CheckOnePerRow(const Node& node, const Value& scores,
                    const Value& labels) {
  if (!scores.concrete() || !labels.concrete()) return;
  Check(scores.rank() == 2 && *labels.shape == Shape{scores.dim(0)}, "[",
        node.Where(), "] expected scores (N, C) and labels (N), got ",
        ToString(*scores.shape), ToString(*labels.shape));
}

void InferCrossEntropy(Node& node) {
  const Value* scores = node.in(0);
  CheckOnePerRow(node, *scores, *node.in(1));
  node.out(0)->dtype = scores->dtype;
  node.out(0)->shape = Shape{};
  Value* lse = node.out(1);
  if (!lse) return;
  lse->dtype = scores->dtype;
  if (scores->concrete()) lse->shape = Shape{scores->dim(0)};
}

// ---- gradients

// Classes are compared, never used as indices: -100 is no class. This is the
// part of the body after log_prob is known.
constexpr char kCrossEntropyFromLogProb[] =
    R"(
  ignore = Constant <value_int: int = @ignore_index> ()
  ignore_t = CastLike (ignore, labels)
  ignored = Equal (labels, ignore_t)
  valid = Not (ignored)
  valid_f = Cast <to = 1> (valid)
  count_f = ReduceSum <keepdims = 0> (valid_f)
  one_f = Constant <value_float = 1.0> ()
  at_least_1 = Max (count_f, one_f)
  count = CastLike (at_least_1, log_prob)
  share = Div (dloss, count)
  classes_1d = Shape <start = 1, end = 2> (log_prob)
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  zeros_1d = Constant <value_ints = [0]> ()
  ones_1d = Constant <value_ints = [1]> ()
  classes = Squeeze (classes_1d, zeros_1d)
  ids = Range (zero, classes, one)
  after = Shape <start = 2> (log_prob)
  axes_after = Size (after)
  axes_after_1d = Unsqueeze (axes_after, zeros_1d)
  ones_after = ConstantOfShape <value = int64[1] {1}> (axes_after_1d)
  ids_shape = Concat <axis = 0> (classes_1d, ones_after)
  ids_column = Reshape <allowzero = 1> (ids, ids_shape)
  ids_t = CastLike (ids_column, labels)
  labels_1 = Unsqueeze (labels, ones_1d)
  hot = Equal (labels_1, ids_t)
  hot_f = CastLike (hot, log_prob)
  p = Exp (log_prob)
  miss = Sub (p, hot_f)
  valid_1 = Unsqueeze (valid, ones_1d)
  nothing_f = Constant <value_float = 0.0> ()
  nothing = CastLike (nothing_f, log_prob)
  counted = Where (valid_1, miss, nothing)
  dscores = Mul (counted, share)
})";

void InferSoftmaxCrossEntropyGrad(Node& node) {
  CheckArity(node, 3, 1);
  const Value *log_prob = node.in(1), *labels = node.in(2);
  if (log_prob->concrete() && labels->concrete()) {
    Check(log_prob->rank() >= 2, "[", node.Where(),
          "] expected log_prob (N, C, …), got ", ToString(*log_prob->shape));
    Shape expected = *log_prob->shape;
    expected.erase(expected.begin() + 1);
    Check(*labels->shape == expected, "[", node.Where(),
          "] expected labels of shape ", ToString(expected), ", got ",
          ToString(*labels->shape));
  }
  SameAs(log_prob, node.out(0));
}

// log_prob from the scores (N,C), which may be overwritten; lse (N) is the
// logarithm of each row's Σ e^scores.
constexpr char kLogProbFromScores[] =
    R"(
  column = Constant <value_ints = [1]> ()
  lse_1 = Unsqueeze (lse, column)
  log_prob = Sub (scores, lse_1))";

void InferCrossEntropyGrad(Node& node) {
  CheckArity(node, 4, 1);
  const Value *scores = node.in(1), *lse = node.in(2), *labels = node.in(3);
  if (scores->concrete() && lse->concrete() && labels->concrete()) {
    Check(scores->rank() == 2 && *lse->shape == Shape{scores->dim(0)} &&
              *labels->shape == *lse->shape,
          "[", node.Where(),
          "] expected scores (N, C), lse (N), labels (N), got ",
          ToString(*scores->shape), ToString(*lse->shape),
          ToString(*labels->shape));
  }
  SameAs(scores, node.out(0));
}

// ---- parts of losses

// The same values, through which no gradient flows.
constexpr char kDetach[] = R"((x) => (y) {
  y = Identity (x)
})";

void InferDetach(Node& node) { SameAs(node.in(0), node.out(0)); }

// ---- both

constexpr char kCrossEntropyWithGrad[] =
    R"((dloss, scores, labels) => (loss, dscores) {
  loss, lse = onnx_fp8.CrossEntropy <ignore_index: int = @ignore_index> (scores, labels)
  dscores = onnx_fp8.CrossEntropyGrad <ignore_index: int = @ignore_index> (dloss, scores, lse, labels)
})";

void InferCrossEntropyWithGrad(Node& node) {
  CheckArity(node, 3, 2);
  const Value* scores = node.in(1);
  CheckOnePerRow(node, *scores, *node.in(2));
  node.out(0)->dtype = scores->dtype;
  node.out(0)->shape = Shape{};
  SameAs(scores, node.out(1));
}

}  // namespace

std::vector<OpDefinition> LossOps() {
  static const std::string softmax_cross_entropy_grad =
      std::string("(dloss, log_prob, labels) => (dscores) {") +
      kCrossEntropyFromLogProb;
  static const std::string cross_entropy_grad =
      std::string("(dloss, scores, lse, labels) => (dscores) {") +
      kLogProbFromScores + kCrossEntropyFromLogProb;
  const std::vector<AttributeDefinition> ignore = {
      {"ignore_index", AttributeKind::kInt}};
  constexpr OpFacts loss = {OpKind::kOther, OpForm::kClasses, Precision::kFloat,
                            ConstantUse::kWeight, Division::kUneven};
  constexpr OpFacts late = LateOp(OpKind::kOther);
  return {
      {"CrossEntropy", ignore, kCrossEntropy, InferCrossEntropy, loss},
      {"CrossEntropyGrad", ignore, cross_entropy_grad.c_str(),
       InferCrossEntropyGrad, late},
      {"CrossEntropyWithGrad", ignore, kCrossEntropyWithGrad,
       InferCrossEntropyWithGrad, late},
      {"Detach", {}, kDetach, InferDetach, late},
      {"SoftmaxCrossEntropyGrad", ignore, softmax_cross_entropy_grad.c_str(),
       InferSoftmaxCrossEntropyGrad, late},
  };
}

}  // namespace onnx_fp8
