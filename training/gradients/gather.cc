// SPDX-License-Identifier: Apache-2.0
//
// Reads at computed places. The gradient adds into zeros: by ScatterElements or
// GatherGrad, never by ScatterND, which races in stock ONNX Runtime.
#include "graph/export_record.h"
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// PyTorch's embeddings have a row that pads sequences, and no gradient for it.
// MarkParameters notes the row on the lookup.
Value* WithoutPadding(C& c) {
  auto note = c.node.metadata.find(kPaddingRow);
  if (note == c.node.metadata.end()) return c.Dy();
  Builder& b = c.b;
  Value* row = b.Constant(ConvertTo(
      Tensor::Scalar(int64_t{std::stoll(note->second)}), c.In(1)->dtype));
  Shape shape = *c.In(1)->shape;
  shape.resize(c.Dy()->shape->size(), 1);
  Value* pads = b.Reshape(b.Op("Equal", {c.In(1), row}), shape);
  return b.Op("Where", {pads, b.Scalar(0, c.Dy()), c.Dy()});
}

Value* Gather(C& c) {
  int64_t axis =
      NormalizeAxis(c.node.Int("axis", 0), c.In(0)->rank(), c.node.Where());
  return c.b.Ours("GatherGrad", {WithoutPadding(c), c.In(1)},
                  {{"axis", axis}, {"shape", *c.In(0)->shape}});
}

Value* AddInto(C& c, Value* indices, int64_t axis) {
  Value* zeros = Filled(c.b, 0, c.Dy(), *c.In(0)->shape);
  return c.b.Op("ScatterElements", {zeros, indices, c.Dy()},
                {{"axis", axis}, {"reduction", std::string("add")}});
}

Value* GatherElements(C& c) {
  return AddInto(c, c.In(1), c.node.Int("axis", 0));
}

// x (B…, D…, R…), indices (B…, I…, k) with k = |D|: the k indices become one
// index into x flattened to (|B| |D|, |R|).
Value* GatherND(C& c) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  size_t batch = static_cast<size_t>(c.node.Int("batch_dims", 0));
  Check(batch <= x.size() && c.In(1)->rank() > 0, "[", c.node.Where(),
        "] expected batch_dims within the operands' ranks, got ", batch);
  Value* indices = b.Cast(c.In(1), DType::kInt64);
  size_t k = static_cast<size_t>(indices->dim(-1));
  Check(batch < indices->shape->size() && k <= x.size() - batch, "[",
        c.node.Where(), "] expected indices that fit x, got ",
        ToString(*indices->shape), " for ", ToString(x));
  Shape batches(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(batch));
  Shape sizes(x.begin() + static_cast<std::ptrdiff_t>(batch),
              x.begin() + static_cast<std::ptrdiff_t>(batch + k));
  Shape rest(x.begin() + static_cast<std::ptrdiff_t>(batch + k), x.end());
  int64_t rows = NumElements(sizes), width = NumElements(rest);
  int64_t per_batch = 1;  // reads per batch: |I|
  for (size_t i = batch; i + 1 < indices->shape->size(); ++i) {
    per_batch *= (*indices->shape)[i];
  }
  int64_t batch_count = NumElements(batches);
  Value* at = b.Reshape(FlatRows(b, indices, sizes), {batch_count, per_batch});
  if (batch_count > 1) {
    std::vector<int64_t> offsets = Range(0, batch_count);
    for (int64_t& offset : offsets) offset *= rows;
    at =
        b.Add(at, b.Constant(Tensor::From<int64_t>({batch_count, 1}, offsets)));
  }
  Value* dy = b.Reshape(c.Dy(), {batch_count * per_batch, width});
  Value* flat = b.Reshape(at, {batch_count * per_batch});
  Value* dx = b.Ours(
      "GatherGrad", {dy, flat},
      {{"axis", int64_t{0}}, {"shape", Shape{batch_count * rows, width}}});
  return b.Reshape(dx, x);
}

Value* TopK(C& c) {
  return AddInto(c, NeedOutput(c, 1, "indices"), c.node.Int("axis", -1));
}

Value* CumSum(C& c) {
  return c.b.Op("CumSum", {c.Dy(), c.In(1)},
                {{"exclusive", c.node.Int("exclusive", 0)},
                 {"reverse", int64_t{c.node.Int("reverse", 0) == 0}}});
}

// dx_k = Σ_i dy_i · (the product y_i without its factor x_k). That is Σ dy_i
// y_i / x_k until the first zero of a line. At that zero, the products are
// taken with a 1 in its place; behind it, they are 0.
Value* CumProd(C& c) {
  Builder& b = c.b;
  Value *x = c.In(0), *axis = c.In(1);
  auto sums = [&](Value* terms) {
    return b.Op("CumSum", {terms, axis},
                {{"exclusive", c.node.Int("exclusive", 0)},
                 {"reverse", int64_t{c.node.Int("reverse", 0) == 0}}});
  };
  Value *zero = b.Scalar(0, x), *one = b.Scalar(1, x);
  Value* is_zero = b.Op("Equal", {x, zero});
  Value* zeros = b.Op("CumSum", {ZeroOne(b, is_zero, x), axis},
                      {{"reverse", c.node.Int("reverse", 0)}});
  Value* first = b.Op("And", {is_zero, b.Op("Equal", {zeros, one})});
  Value* others = b.Op("CumProd", {b.Op("Where", {first, one, x}), axis},
                       c.node.attributes);
  Value* before =
      b.Div(sums(b.Mul(c.Dy(), c.Out(0))), b.Op("Where", {is_zero, one, x}));
  return b.Op("Where", {first, sums(b.Mul(c.Dy(), others)),
                        Masked(b, b.Op("Equal", {zeros, zero}), before)});
}

// values = (off, on): each gets the sum of dy where y is off or on.
void OneHot(C& c) {
  if (!c.Needs(2)) return;
  Builder& b = c.b;
  Value* zero_one = b.Constant(ConvertTo(
      Tensor::From<double>({2}, std::vector<double>{0, 1}), c.Dy()->dtype));
  Value* hot = b.Op("OneHot", {c.In(0), c.In(1), zero_one},
                    {{"axis", c.node.Int("axis", -1)}});
  Value* cold = b.Sub(b.Scalar(1, c.Dy()), hot);
  c.Set(2, b.Op("Concat",
                {b.Reshape(b.SumTo(b.Mul(c.Dy(), cold), {}), {1}),
                 b.Reshape(b.SumTo(b.Mul(c.Dy(), hot), {}), {1})},
                {{"axis", int64_t{0}}}));
}

}  // namespace

Value* FlatRows(Builder& b, Value* indices, const Shape& sizes) {
  indices = b.Cast(indices, DType::kInt64);
  Value* at = b.Op("Where", {b.Op("Less", {indices, b.Int(0)}),
                             b.Add(indices, b.Ints(sizes)), indices});
  return b.ReduceSum(b.Mul(at, b.Ints(Strides(sizes))), {indices->rank() - 1},
                     false);
}

void RegisterGatherGradients(GradientRegistry& r) {
  r.Add("CumProd", Unary<CumProd>);
  r.Add("CumSum", Unary<CumSum>);
  r.Add("Gather", Unary<Gather>);
  r.Add("GatherElements", Unary<GatherElements>);
  r.Add("GatherND", Unary<GatherND>);
  r.Add("OneHot", OneHot);
  r.Add("TopK", Unary<TopK>);
}

}  // namespace onnx_fp8
