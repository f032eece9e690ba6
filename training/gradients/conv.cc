// SPDX-License-Identifier: Apache-2.0
//
// Conv and ConvTranspose are each other's transposes, so the input gradient of
// one is the other. The weight gradient is a Conv of the large side whose
// weight is the small side. Shapes: large side (N, C, X…), small side (N, M,
// Y…), weight (M, C/g, K…) for g groups.
#include "training/gradients/rule.h"
#include "training/gradients/window.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Shape Spatial(const Shape& shape) {
  return Shape(shape.begin() + 2, shape.end());
}

Shape WithSpatial(Shape head, const Shape& shape) {
  head.insert(head.end(), shape.begin() + 2, shape.end());
  return head;
}

// Swaps the first two axes.
Value* SwapFirst(Builder& b, Value* x) {
  std::vector<int64_t> perm = Range(0, x->rank());
  std::swap(perm[0], perm[1]);
  return b.Transpose(x, perm);
}

// dw[m,c,t] = Σ_n,j small[n,m,j] large[n,c, j·stride - begin + t·dilation]: a
// Conv whose batch is c, whose input channels are n (by group), whose weight
// is the small side, with stride and dilation swapped.
Value* WeightGradient(Builder& b, Value* large, Value* small,
                      const WindowPlaces& w, int64_t group) {
  large = CutUnread(b, large, w);
  int64_t n = large->dim(0), per_group = large->dim(1) / group;
  Value* images;
  if (group == 1) {
    images = SwapFirst(b, large);
  } else {
    Shape split = WithSpatial({n, group, per_group}, *large->shape);
    std::vector<int64_t> perm = Range(0, static_cast<int64_t>(split.size()));
    std::swap(perm[0], perm[2]);
    Value* moved = b.Transpose(b.Reshape(large, split), perm);
    images =
        b.Reshape(moved, WithSpatial({per_group, group * n}, *large->shape));
  }
  WindowPlaces swapped = w;
  std::swap(swapped.strides, swapped.dilations);
  swapped.kernel = Spatial(*small->shape);
  Value* dw = b.Op("Conv", {images, SwapFirst(b, small)},
                   ConvAttributes(swapped, group));
  return SwapFirst(b, dw);
}

void SetBias(C& c) {
  if (!c.Needs(2)) return;
  std::vector<int64_t> axes = Range(1, c.Dy()->rank());
  axes[0] = 0;
  c.Set(2, c.b.ReduceSum(c.Dy(), axes, false));
}

void CheckOperands(C& c, size_t channel_axis) {
  const Shape &x = *c.In(0)->shape, &w = *c.In(1)->shape;
  int64_t group = c.node.Int("group", 1);
  Check(x.size() >= 3 && w.size() == x.size(), "[", c.node.Where(),
        "] expected x and weight of the same rank >= 3, got ", ToString(x),
        " and ", ToString(w));
  Check(group > 0 && x[1] % group == 0 && w[0] % group == 0 &&
            x[1] == w[channel_axis] * (channel_axis == 1 ? group : 1),
        "[", c.node.Where(), "] expected channels that fit ", group,
        " groups, got x ", ToString(x), " and weight ", ToString(w));
}

// If there is nothing to add up, the gradients are zeros.
bool SetZeros(C& c) {
  bool empty =
      NumElements(*c.Dy()->shape) == 0 || NumElements(*c.In(0)->shape) == 0;
  for (size_t i = 0; empty && i < 2; ++i) {
    c.Set(i, Filled(c.b, 0, c.In(i), *c.In(i)->shape));
  }
  return empty;
}

void Conv(C& c) {
  CheckOperands(c, 1);
  SetBias(c);
  if (SetZeros(c)) return;
  Value *x = c.In(0), *weight = c.In(1);
  int64_t group = c.node.Int("group", 1);
  WindowPlaces w =
      WindowOfConv(c.node, Spatial(*weight->shape), *x->shape, *c.Dy()->shape);
  if (c.Needs(0)) {
    c.Set(0, c.b.Op("ConvTranspose", {c.Dy(), weight},
                    ConvTransposeAttributes(w, group)));
  }
  if (c.Needs(1)) c.Set(1, WeightGradient(c.b, x, c.Dy(), w, group));
}

void ConvTranspose(C& c) {
  CheckOperands(c, 0);
  SetBias(c);
  if (SetZeros(c)) return;
  Value *x = c.In(0), *weight = c.In(1);
  int64_t group = c.node.Int("group", 1);
  WindowPlaces w = WindowOfConvTranspose(c.node, Spatial(*weight->shape),
                                         *x->shape, *c.Dy()->shape);
  if (c.Needs(0)) {
    c.Set(0, c.b.Op("Conv", {CutUnread(c.b, c.Dy(), w), weight},
                    ConvAttributes(w, group)));
  }
  if (c.Needs(1)) c.Set(1, WeightGradient(c.b, c.Dy(), x, w, group));
}

// The columns of dy: a convolution whose filters each pick one tap.
Value* Col2Im(C& c) {
  Builder& b = c.b;
  const Shape &x = *c.In(0)->shape, &image = *c.Out(0)->shape;
  Shape block = ConstantInts(c, 2, "block_shape");
  int64_t taps = NumElements(block);
  Shape one_channel = image, filters = {taps, 1};
  one_channel[0] *= one_channel[1];
  one_channel[1] = 1;
  filters.insert(filters.end(), block.begin(), block.end());
  std::vector<double> picks(static_cast<size_t>(taps * taps), 0);
  for (int64_t i = 0; i < taps; ++i) {
    picks[static_cast<size_t>(i * (taps + 1))] = 1;
  }
  Value* weight = b.Constant(
      ConvertTo(Tensor::From<double>(filters, picks), c.Dy()->dtype));
  Attributes attributes = c.node.attributes;
  attributes["kernel_shape"] = block;
  Value* columns =
      b.Op("Conv", {b.Reshape(c.Dy(), one_channel), weight}, attributes);
  return b.Reshape(columns, x);
}

}  // namespace

void RegisterConvGradients(GradientRegistry& r) {
  r.Add("Col2Im", Unary<Col2Im>);
  r.Add("Conv", Conv);
  r.Add("ConvTranspose", ConvTranspose);
}

}  // namespace onnx_fp8
