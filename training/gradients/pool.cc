// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"
#include "training/gradients/window.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

WindowPlaces PoolWindow(C& c) {
  return WindowOfConv(c.node, c.node.Ints("kernel_shape"), *c.In(0)->shape,
                      *c.Out(0)->shape);
}

// Adds element j of t (N, C, Y…) to all elements of x that window j reads: a
// ConvTranspose with a kernel of ones on each channel by itself.
Value* SpreadWindows(C& c, Value* t, const WindowPlaces& w) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  Shape one_channel = *t->shape;
  one_channel[0] *= one_channel[1];
  one_channel[1] = 1;
  Shape kernel = {1, 1};
  kernel.insert(kernel.end(), w.kernel.begin(), w.kernel.end());
  Value* spread = b.Op("ConvTranspose",
                       {b.Reshape(t, one_channel), Filled(b, 1, t, kernel)},
                       ConvTransposeAttributes(w, 1));
  return b.Reshape(spread, x);
}

// 1 / (number of averaged elements), (1, 1, Y…) if it differs between places.
Value* InverseCounts(C& c, const WindowPlaces& w) {
  bool padded = c.node.Int("count_include_pad", 0) != 0;
  const Shape &x = *c.In(0)->shape, &y = *c.Out(0)->shape;
  Shape shape(y.size(), 1);
  std::vector<double> counts = {1};
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    int64_t low = padded ? -w.begin[i] : 0;
    int64_t high = x[i + 2] + (padded ? w.declared_end[i] : 0);
    std::vector<double> next;
    shape[i + 2] = y[i + 2];
    for (double before : counts) {
      for (int64_t j = 0; j < y[i + 2]; ++j) {
        int64_t count = 0;
        for (int64_t t = 0; t < w.kernel[i]; ++t) {
          int64_t at = j * w.strides[i] - w.begin[i] + t * w.dilations[i];
          count += at >= low && at < high;
        }
        next.push_back(before * static_cast<double>(count));
      }
    }
    counts = std::move(next);
  }
  for (double& count : counts) count = 1 / count;
  return c.b.Constant(
      ConvertTo(Tensor::From<double>(shape, counts), c.Dy()->dtype));
}

Value* AveragePool(C& c) {
  WindowPlaces w = PoolWindow(c);
  return SpreadWindows(c, c.b.Mul(c.Dy(), InverseCounts(c, w)), w);
}

// dx = sign(x) |x|^(p-1) Σ_windows dy y^(1-p); a window of zeros has no slope.
// `spread` adds the term of each window to the elements that it reads.
template <typename Spread>
Value* PowerMean(C& c, Spread spread) {
  Builder& b = c.b;
  Value *x = c.In(0), *y = c.Out(0);
  double p = static_cast<double>(c.node.Int("p", 2));
  Value* positive = b.Op("Greater", {y, b.Scalar(0, y)});
  Value* share =
      b.Mul(c.Dy(), Masked(b, positive, b.Op("Pow", {y, b.Scalar(1 - p, y)})));
  Value* power = b.Op("Pow", {b.Op("Abs", {x}), b.Scalar(p - 1, x)});
  return b.Mul(b.Mul(b.Op("Sign", {x}), power), spread(share));
}

Value* LpPool(C& c) {
  return PowerMean(
      c, [&](Value* t) { return SpreadWindows(c, t, PoolWindow(c)); });
}

Value* GlobalLpPool(C& c) {
  return PowerMean(c, [](Value* t) { return t; });  // it broadcasts
}

// x as a flat vector with dy added at `indices`.
Value* AddAt(C& c, Value* indices) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  int64_t count = NumElements(*c.Dy()->shape);
  Value* zeros = Filled(b, 0, c.Dy(), {NumElements(x)});
  Value* flat =
      b.Op("ScatterElements",
           {zeros, b.Reshape(indices, {count}), b.Reshape(c.Dy(), {count})},
           {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  return b.Reshape(flat, x);
}

Value* MaxPool(C& c) {
  if (c.node.Int("storage_order", 0) == 0) {
    return AddAt(c, NeedOutput(c, 1, "indices"));
  }
  // The indices must be row-major.
  Attributes attributes = c.node.attributes;
  attributes["storage_order"] = int64_t{0};
  return AddAt(c, c.b.Ops("MaxPool", {c.In(0)}, 2, attributes)[1]);
}

Value* GlobalAveragePool(C& c) {
  const Shape& x = *c.In(0)->shape;
  Shape spatial(x.begin() + 2, x.end());
  double share = 1.0 / static_cast<double>(NumElements(spatial));
  return ExpandTo(c.b, c.b.Mul(c.Dy(), c.b.Scalar(share, c.Dy())), x);
}

// All of dy goes to the first element that is the maximum.
Value* GlobalMaxPool(C& c) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  int64_t planes = x[0] * x[1];
  int64_t size = planes == 0 ? 0 : NumElements(x) / planes;
  Value* rows = b.Reshape(c.In(0), {planes, size});
  Value* at = b.Op("ArgMax", {rows}, {{"axis", int64_t{1}}});
  Value* dx = b.Op(
      "ScatterElements",
      {Filled(b, 0, rows, {planes, size}), at, b.Reshape(c.Dy(), {planes, 1})},
      {{"axis", int64_t{1}}, {"reduction", std::string("add")}});
  return b.Reshape(dx, x);
}

}  // namespace

void RegisterPoolGradients(GradientRegistry& r) {
  r.Add("AveragePool", Unary<AveragePool>);
  r.Add("GlobalAveragePool", Unary<GlobalAveragePool>);
  r.Add("GlobalLpPool", Unary<GlobalLpPool>);
  r.Add("GlobalMaxPool", Unary<GlobalMaxPool>);
  r.Add("LpPool", Unary<LpPool>);
  r.Add("MaxPool", Unary<MaxPool>);
}

}  // namespace onnx_fp8
