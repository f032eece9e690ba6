// SPDX-License-Identifier: Apache-2.0
//
// Normalizations. h = (x - mean) / deviation is the normalized x.
#include <algorithm>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Value* Mean(Builder& b, Value* x, const std::vector<int64_t>& axes) {
  return b.Op("ReduceMean", {x, b.Ints(axes)});
}

// 1 / sqrt(v + epsilon)
Value* InverseDeviation(Builder& b, Value* variance, float epsilon) {
  Value* shifted = b.Add(variance, b.Scalar(epsilon, variance));
  return b.Op("Reciprocal", {b.Op("Sqrt", {shifted})});
}

struct Normalized {
  Value* h;
  Value* inverse;  // 1 / deviation
};

Normalized Normalize(Builder& b, Value* x, const std::vector<int64_t>& axes,
                     float epsilon) {
  Value* centered = b.Sub(x, Mean(b, x, axes));
  Value* variance = Mean(b, b.Mul(centered, centered), axes);
  Value* inverse = InverseDeviation(b, variance, epsilon);
  return {b.Mul(centered, inverse), inverse};
}

// dx = (dh - mean(dh) - h mean(dh h)) / deviation, means over `axes`.
Value* NormalizeGrad(Builder& b, Value* dh, const Normalized& n,
                     const std::vector<int64_t>& axes) {
  Value* along = b.Mul(n.h, Mean(b, b.Mul(dh, n.h), axes));
  return b.Mul(b.Sub(b.Sub(dh, Mean(b, dh, axes)), along), n.inverse);
}

Shape Tail(const Shape& shape, int64_t axis) {
  return Shape(shape.begin() + axis, shape.end());
}

// Scale and bias of LayerNormalization and RMSNormalization may have any shape
// that broadcasts to x. Our ops take the shape of the normalized axes. A scale
// of any other shape is multiplied outside of our op.
struct ScaledNorm {
  explicit ScaledNorm(C& c)
      : axis(NormalizeAxis(c.node.Int("axis", -1), c.In(0)->rank(),
                           c.node.Where())),
        dh(c.Dy()) {
    Shape tail = Tail(*c.In(0)->shape, axis);
    scale = c.In(1);
    plain = *scale->shape == tail;
    if (plain) return;
    if (scale->rank() <= static_cast<int64_t>(tail.size())) {
      scale = ExpandTo(c.b, scale, tail);
      plain = true;
      return;
    }
    dh = c.b.Mul(dh, scale);
    scale = Filled(c.b, 1, scale, tail);
  }

  int64_t axis;
  Value* scale;  // for our op
  Value* dh;     // for our op
  bool plain;    // our op sees dy and the scale, so its dscale and dbias are
                 // right
};

int64_t AxisOf(const C& c) {
  return NormalizeAxis(c.node.Int("axis", -1), c.In(0)->rank(), c.node.Where());
}

// dx + the gradient of x by the two outputs from `first` on, the mean and the
// inverse of the deviation; dx and the result may be null.
//   d mean / dx = 1 / n,  d inverse / dx = -inverse³ (x - mean) / n
Value* WithStatistics(C& c, Value* x, size_t first, Value* dx) {
  Builder& b = c.b;
  Shape tail = Tail(*x->shape, AxisOf(c));
  double share = 1.0 / static_cast<double>(NumElements(tail));
  auto add = [&](Value* part) { dx = dx ? b.Add(dx, part) : part; };
  if (Value* dmean = c.Dy(first)) {
    add(b.Mul(b.Cast(dmean, x->dtype), b.Scalar(share, x)));
  }
  if (Value* dinverse = c.Dy(first + 1)) {
    Value* mean = b.Cast(NeedOutput(c, first, "mean"), x->dtype);
    Value* inverse = c.Out(first + 1);
    Value* cube = b.Mul(b.Mul(inverse, inverse), inverse);
    Value* slope = b.Cast(b.Mul(dinverse, cube), x->dtype);
    add(b.Mul(b.Mul(slope, b.Sub(x, mean)), b.Scalar(-share, x)));
  }
  return dx ? ExpandTo(b, dx, *x->shape) : nullptr;
}

// Gradients of the normalized values by x, scale and bias.
void NormalizedGradient(C& c) {
  Builder& b = c.b;
  ScaledNorm norm(c);
  Value* mean = NeedOutput(c, 1, "mean");
  Value* inverse = NeedOutput(c, 2, "inv_std_dev");
  std::vector<Value*> grads =
      b.Ops("LayerNormGrad", {norm.dh, c.In(0), norm.scale, mean, inverse}, 3,
            {{"axis", norm.axis}}, kDomain);
  c.Set(0, grads[0]);
  bool plain_bias = c.In(2) && c.In(2)->rank() <= norm.scale->rank();
  c.Set(2, norm.plain && plain_bias ? grads[2] : c.Dy());
  if (norm.plain) return c.Set(1, grads[1]);
  Value* h = b.Mul(b.Sub(c.In(0), b.Cast(mean, c.In(0)->dtype)),
                   b.Cast(inverse, c.In(0)->dtype));
  c.Set(1, b.Mul(c.Dy(), h));
}

void LayerNormalization(C& c) {
  if (c.Dy()) NormalizedGradient(c);
  c.Set(0, WithStatistics(c, c.In(0), 1, c.Dx(0)));
}

void RMSNormalization(C& c) {
  Builder& b = c.b;
  ScaledNorm norm(c);
  float epsilon = c.node.Float("epsilon", 1e-5f);
  std::vector<Value*> grads =
      b.Ops("RMSNormGrad", {norm.dh, c.In(0), norm.scale}, 2,
            {{"axis", norm.axis}, {"epsilon", epsilon}}, kDomain);
  c.Set(0, grads[0]);
  if (norm.plain) return c.Set(1, grads[1]);
  Value* x = c.In(0);
  Value* square = Mean(b, b.Mul(x, x), Range(norm.axis, x->rank()));
  c.Set(1, b.Mul(c.Dy(), b.Mul(x, InverseDeviation(b, square, epsilon))));
}

// For (a, b, scale[, bias]) -> (x, y, …): returns the gradient of x itself, to
// which the gradient through its norm is added in one pass. Sets the gradients
// of scale and bias.
Value* AddNorm(C& c, const char* plain, const char* with_sum,
               const std::vector<Value*>& statistics, Attributes attributes) {
  Value *dx = c.Dy(0), *dy = c.Dy(1);
  if (dy) {
    std::vector<Value*> in = {dy, c.Out(0), c.In(2)};
    in.insert(in.end(), statistics.begin(), statistics.end());
    if (dx) in.insert(in.begin(), dx);
    size_t results = c.node.inputs().size() - 1;
    auto grads = c.b.Ops(dx ? with_sum : plain, in, results,
                         std::move(attributes), kDomain);
    dx = grads[0];
    for (size_t i = 1; i < results; ++i) c.Set(i + 1, grads[i]);
  }
  return dx;
}

void SetOfBoth(C& c, Value* dx) {
  c.Set(0, dx);
  c.Set(1, dx);
}

void AddLayerNorm(C& c) {
  std::vector<Value*> statistics;
  if (c.Dy(1)) {
    statistics = {NeedOutput(c, 2, "mean"), NeedOutput(c, 3, "inv_std")};
  }
  Value* dx = AddNorm(c, "LayerNormGrad", "AddLayerNormGrad", statistics,
                      {{"axis", AxisOf(c)}});
  SetOfBoth(c, WithStatistics(c, c.Out(0), 2, dx));
}

void AddRMSNorm(C& c) {
  SetOfBoth(c, AddNorm(c, "RMSNormGrad", "AddRMSNormGrad", {},
                       {{"axis", AxisOf(c)},
                        {"epsilon", c.node.Float("epsilon", 1e-5f)}}));
}

void CheckRank(C& c) {
  Check(c.In(0)->rank() >= 2, "[", c.node.Where(),
        "] expected x (N, C, …), got ", ToString(*c.In(0)->shape));
}

// All axes except the channels.
std::vector<int64_t> BatchAxes(int64_t rank) {
  std::vector<int64_t> axes = Range(1, rank);
  axes[0] = 0;
  return axes;
}

// A per-channel vector (C) as (1, C, 1, …).
Value* PerChannel(C& c, Value* v) {
  Shape shape(c.In(0)->shape->size(), 1);
  shape[1] = v->dim(0);
  return c.b.Cast(c.b.Reshape(v, shape), c.In(0)->dtype);
}

// dscale and dbias of y = h scale + bias per channel.
void SetScaleAndBias(C& c, Value* h) {
  std::vector<int64_t> axes = BatchAxes(c.In(0)->rank());
  if (c.Needs(1)) {
    c.Set(1, c.b.ReduceSum(c.b.Mul(c.Dy(), h), axes, false));
  }
  if (c.Needs(2)) c.Set(2, c.b.ReduceSum(c.Dy(), axes, false));
}

// Statistics of the batch: running = momentum old + (1 - momentum) batch.
void BatchNormTraining(C& c, float epsilon) {
  Builder& b = c.b;
  Value* x = c.In(0);
  std::vector<int64_t> axes = BatchAxes(x->rank());
  Normalized n = Normalize(b, x, axes, epsilon);
  Value* dx = nullptr;
  auto add = [&](Value* part) { dx = dx ? b.Add(dx, part) : part; };
  if (c.Dy(0)) {
    SetScaleAndBias(c, n.h);
    add(NormalizeGrad(b, b.Mul(c.Dy(), PerChannel(c, c.In(1))), n, axes));
  }
  double momentum = c.node.Float("momentum", 0.9f);
  double count = static_cast<double>(NumElements(*x->shape)) /
                 static_cast<double>(std::max<int64_t>(x->dim(1), 1));
  double share = (1 - momentum) / std::max(count, 1.0);
  if (Value* dmean = c.Dy(1)) {
    if (c.Needs(3)) c.Set(3, b.Mul(dmean, b.Scalar(momentum, dmean)));
    add(b.Mul(PerChannel(c, dmean), b.Scalar(share, x)));
  }
  if (Value* dvariance = c.Dy(2)) {  // d variance / dx = 2 (x - mean) / count
    if (c.Needs(4)) c.Set(4, b.Mul(dvariance, b.Scalar(momentum, dvariance)));
    Value* centered = b.Div(n.h, n.inverse);
    add(b.Mul(b.Mul(PerChannel(c, dvariance), b.Scalar(2 * share, x)),
              centered));
  }
  if (c.Needs(0)) c.Set(0, ExpandTo(b, dx, *x->shape));
}

void BatchNormalization(C& c) {
  Builder& b = c.b;
  Value* x = c.In(0);
  CheckRank(c);
  float epsilon = c.node.Float("epsilon", 1e-5f);
  if (c.node.Int("training_mode", 0) != 0) return BatchNormTraining(c, epsilon);
  std::vector<int64_t> axes = BatchAxes(x->rank());
  Value* inverse = InverseDeviation(b, PerChannel(c, c.In(4)), epsilon);
  Value* h = b.Mul(b.Sub(x, PerChannel(c, c.In(3))), inverse);
  SetScaleAndBias(c, h);
  Value* dx = b.Mul(c.Dy(), b.Mul(PerChannel(c, c.In(1)), inverse));
  if (c.Needs(0)) c.Set(0, dx);
  if (c.Needs(3)) c.Set(3, b.Neg(b.ReduceSum(dx, axes, false)));
  if (c.Needs(4)) {  // d(inverse)/d(variance) = -inverse³ / 2
    Value* slope = b.Mul(b.Mul(dx, h), b.Mul(inverse, b.Scalar(-0.5, x)));
    c.Set(4, b.ReduceSum(slope, axes, false));
  }
}

// Each (sample, channel) separately.
void InstanceNormalization(C& c) {
  CheckRank(c);
  std::vector<int64_t> axes = Range(2, c.In(0)->rank());
  Normalized n = Normalize(c.b, c.In(0), axes, c.node.Float("epsilon", 1e-5f));
  SetScaleAndBias(c, n.h);
  if (c.Needs(0)) {
    Value* dh = c.b.Mul(c.Dy(), PerChannel(c, c.In(1)));
    c.Set(0, NormalizeGrad(c.b, dh, n, axes));
  }
}

// y = x / |x|_p: dx = (dy - |x|_p' Σ dy y) / |x|_p, |x|_2' = y, |x|_1' = sign
// x. A row of zeros stays zeros: no gradient.
Value* LpNormalization(C& c) {
  Builder& b = c.b;
  Value *x = c.In(0), *y = c.Out(0);
  std::vector<int64_t> axes = {
      NormalizeAxis(c.node.Int("axis", -1), x->rank(), c.node.Where())};
  bool l1 = c.node.Int("p", 2) == 1;
  Value* norm = b.Op(l1 ? "ReduceL1" : "ReduceL2", {x, b.Ints(axes)});
  Value* slope = l1 ? b.Op("Sign", {x}) : y;
  Value* along = b.Mul(slope, b.ReduceSum(b.Mul(c.Dy(), y), axes, true));
  Value* positive = b.Op("Greater", {norm, b.Scalar(0, norm)});
  return Masked(b, positive, b.Div(b.Sub(c.Dy(), along), norm));
}

// Σ over the window of `size` channels around each one; `before` of them come
// before it.
Value* WindowSum(Builder& b, Value* x, int64_t size, int64_t before) {
  std::vector<int64_t> begin(x->shape->size(), 0);
  begin[1] = before;
  Shape wide = *x->shape;
  wide[1] += size - 1;
  Value* padded = Place(b, x, begin, wide);
  std::vector<Value*> parts;
  for (int64_t i = 0; i < size; ++i) {
    parts.push_back(SliceAxis(b, padded, 1, i, i + x->dim(1)));
  }
  return parts.size() == 1 ? parts[0] : b.Op("Sum", parts);
}

// y = x s^-beta, s = bias + alpha/size Σ_window x².
Value* LRN(C& c) {
  Builder& b = c.b;
  Value* x = c.In(0);
  int64_t size = c.node.Int("size", 1), before = (size - 1) / 2;
  Check(size > 0 && x->rank() >= 2, "[", c.node.Where(),
        "] expected size > 0 and x of rank >= 2, got size ", size);
  double alpha = c.node.Float("alpha", 0.0001f) / static_cast<double>(size);
  double beta = c.node.Float("beta", 0.75f);
  Value* s =
      b.Add(b.Mul(WindowSum(b, b.Mul(x, x), size, before), b.Scalar(alpha, x)),
            b.Scalar(c.node.Float("bias", 1.0f), x));
  Value* direct = b.Mul(c.Dy(), b.Op("Pow", {s, b.Scalar(-beta, x)}));
  // Element i lies in the windows of all elements that its mirrored window
  // holds.
  Value* through =
      WindowSum(b, b.Div(b.Mul(direct, x), s), size, size - 1 - before);
  return b.Sub(direct, b.Mul(b.Mul(x, b.Scalar(2 * alpha * beta, x)), through));
}

}  // namespace

void RegisterNormGradients(GradientRegistry& r) {
  r.Add("AddLayerNorm", AddLayerNorm, kDomain, 4);
  r.Add("AddRMSNorm", AddRMSNorm, kDomain, 2);
  r.Add("BatchNormalization", BatchNormalization, "", 3);
  r.Add("InstanceNormalization", InstanceNormalization);
  r.Add("LRN", Unary<LRN>);
  r.Add("LayerNormalization", LayerNormalization, "", 3);
  r.Add("LpNormalization", Unary<LpNormalization>);
  r.Add("RMSNorm", RMSNormalization, kDomain);
  r.Add("RMSNormalization", RMSNormalization);
}

}  // namespace onnx_fp8
