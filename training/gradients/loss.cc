// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// Classes are compared, never used as indices: -100 is no class.
struct Classes {
  Value* hot;    // (N, C, D…) bool: true at the class of each sample
  Value* valid;  // (N, 1, D…) bool: labels that count
};

Classes ClassesOf(C& c) {
  Builder& b = c.b;
  Value* labels = b.Cast(c.In(1), DType::kInt64);
  Shape shape = *labels->shape;
  shape.insert(shape.begin() + 1, 1);
  labels = b.Reshape(labels, shape);
  Shape per_class(shape.size(), 1);
  per_class[1] = c.In(0)->dim(1);
  Value* ids =
      b.Constant(Tensor::Ints(Range(0, per_class[1])).Reshaped(per_class));
  Value* hot = b.Op("Equal", {labels, ids});
  if (!c.node.Has("ignore_index")) {
    return {hot, b.Op("GreaterOrEqual", {labels, b.Int(0)})};
  }
  Value* ignored =
      b.Op("Equal", {labels, b.Int(c.node.Int("ignore_index", 0))});
  return {hot, b.Op("Not", {ignored})};
}

Value* SumAll(Builder& b, Value* x) { return b.SumTo(x, {}); }

// loss_i = -w_i log p_i; w_i is the weight of the sample's class, 0 if ignored;
// mean divides by Σ w. `log_prob`: of the operand, or the operand itself.
void General(C& c, Value* log_prob) {
  Builder& b = c.b;
  Classes classes = ClassesOf(c);
  Value* counted = b.Op("And", {classes.hot, classes.valid});
  Value* hot = ZeroOne(b, counted, log_prob);
  Value* weight = nullptr;  // (N, 1, D…)
  if (c.In(2)) {
    Shape per_class(log_prob->shape->size(), 1);
    per_class[1] = log_prob->dim(1);
    weight = b.ReduceSum(b.Mul(hot, b.Reshape(c.In(2), per_class)), {1}, true);
  } else {
    weight = ZeroOne(b, classes.valid, log_prob);
  }
  Value* dloss = c.Dy(0);
  Value* total = nullptr;
  std::string reduction = c.node.String("reduction", "mean");
  if (reduction == "none") {
    dloss = b.Reshape(dloss, *weight->shape);
  } else if (reduction == "mean") {
    // If no sample counts, the loss is 0/0 and the gradient 0.
    total = SumAll(b, weight);
    Value* any = b.Op("Equal", {total, b.Scalar(0, total)});
    total = b.Op("Where", {any, b.Scalar(1, total), total});
    dloss = b.Div(dloss, total);
  }
  if (c.Needs(0)) {
    Value* miss =
        log_prob == c.In(0) ? b.Neg(hot) : b.Sub(b.Op("Exp", {log_prob}), hot);
    // An ignored sample may hold anything, infinities included.
    c.Set(0, b.Mul(Masked(b, classes.valid, miss), b.Mul(dloss, weight)));
  }
  if (c.Needs(2)) {
    // Only for the sample's class: -(log p + loss) for mean, else -log p.
    Value* slope = total ? b.Add(log_prob, c.Out(0)) : log_prob;
    std::vector<int64_t> axes = Range(1, log_prob->rank());
    axes[0] = 0;
    c.Set(2, b.ReduceSum(Masked(b, counted, b.Neg(b.Mul(slope, dloss))), axes,
                         false));
  }
}

void SoftmaxCrossEntropyLoss(C& c) {
  Builder& b = c.b;
  if (c.Dy(0)) {
    bool plain = !c.In(2) && c.node.String("reduction", "mean") == "mean";
    if (plain) {
      // Without ignore_index every label is a class; -100 is no class.
      c.Set(0, b.Ours("SoftmaxCrossEntropyGrad",
                      {c.Dy(0), NeedOutput(c, 1, "log_prob"), c.In(1)},
                      {{"ignore_index", c.node.Int("ignore_index", -100)}}));
    } else {
      General(c, NeedOutput(c, 1, "log_prob"));
    }
  }
  if (c.Dy(1) && c.Needs(0)) {  // as LogSoftmax over axis 1
    Value* total = b.ReduceSum(c.Dy(1), {1}, true);
    Value* dx = b.Sub(c.Dy(1), b.Mul(b.Op("Exp", {c.Out(1)}), total));
    c.Set(0, c.Dx(0) ? b.Add(c.Dx(0), dx) : dx);
  }
}

void NegativeLogLikelihoodLoss(C& c) { General(c, c.In(0)); }

void CrossEntropy(C& c) {
  Value* lse = NeedOutput(c, 1, "lse");
  c.Set(0, c.b.Ours("CrossEntropyGrad", {c.Dy(0), c.In(0), lse, c.In(1)},
                    {{"ignore_index", c.node.Int("ignore_index", -100)}}));
}

}  // namespace

void RegisterLossGradients(GradientRegistry& r) {
  r.Add("CrossEntropy", CrossEntropy, kDomain);
  r.Add("NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss);
  r.Add("SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss, "", 2);
}

}  // namespace onnx_fp8
