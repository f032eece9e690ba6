// SPDX-License-Identifier: Apache-2.0
//
// Resize is linear in x and works axis by axis, so each axis has a matrix. The
// kernel computes it from unit vectors, which covers every mode and coordinate
// transformation, and gradient and kernel can't disagree.
#include <algorithm>

#include "graph/onnx/infer_shapes.h"
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

struct Resized {
  std::vector<int64_t> axes;
  Tensor roi, scales, sizes;  // undefined if omitted
};

Tensor ConstantInput(const C& c, size_t i, const char* what) {
  const Value* value = c.In(i);
  if (!value) return {};
  Check(value->is_constant(), "[", c.node.Where(), "] expected constant ", what,
        " for the gradient, got the computed value \"", value->name, "\"");
  return value->data.size() == 0 ? Tensor() : value->data;
}

Resized Arguments(const C& c) {
  Resized r;
  int64_t rank = c.In(0)->rank();
  r.axes = c.node.Ints("axes", Range(0, rank));
  for (int64_t& axis : r.axes) {
    axis = NormalizeAxis(axis, rank, c.node.Where());
  }
  r.roi = ConstantInput(c, 1, "roi");
  r.scales = ConstantInput(c, 2, "scales");
  r.sizes = ConstantInput(c, 3, "sizes");
  return r;
}

// The elements of a vector at positions `which`.
Tensor Pick(const Tensor& vector, const std::vector<int64_t>& which) {
  if (!vector.defined()) return {};
  std::vector<double> picked;
  for (int64_t i : which) picked.push_back(DoubleAt(vector, i));
  int64_t count = static_cast<int64_t>(picked.size());
  return ConvertTo(Tensor::From<double>({count}, picked), vector.dtype());
}

// One row per element of axis `axis`: 1 at that element, 0 elsewhere, and the
// same along all other axes of `shape`.
Tensor UnitVectors(const Shape& shape, size_t axis, DType dtype) {
  Shape all = shape;
  all.insert(all.begin(), shape[axis]);
  Tensor units = Tensor::Zeros(DType::kDouble, all);
  int64_t inner = Strides(shape)[axis], size = shape[axis];
  int64_t per_row = NumElements(shape);
  for (int64_t i = 0; i < units.size(); ++i) {
    bool hit = i / per_row == i % per_row / inner % size;
    units.data<double>()[i] = hit ? 1 : 0;
  }
  return ConvertTo(units, dtype);
}

// (X, Y) for r.axes[which]: row i is the result for unit vector i. If an aspect
// ratio must be kept, the scale depends on all axes, so all are there.
Tensor Matrix(const C& c, const Resized& r, size_t which) {
  bool keeps_ratio =
      r.sizes.defined() &&
      c.node.String("keep_aspect_ratio_policy", "stretch") != "stretch";
  std::vector<int64_t> chosen = {static_cast<int64_t>(which)};
  if (keeps_ratio) chosen = Range(0, static_cast<int64_t>(r.axes.size()));
  Shape shape, result = {0};
  std::vector<int64_t> roi = chosen;
  for (int64_t i : chosen) {
    int64_t axis = r.axes[static_cast<size_t>(i)];
    shape.push_back(c.In(0)->dim(axis));
    result.push_back(c.Out(0)->dim(axis));
    roi.push_back(i + static_cast<int64_t>(r.axes.size()));
  }
  size_t at = keeps_ratio ? which : 0;
  result[0] = shape[at];
  Graph graph;
  DType dtype =
      c.In(0)->dtype == DType::kDouble ? DType::kDouble : DType::kFloat;
  std::vector<Value*> inputs = {
      graph.AddInitializer("x", UnitVectors(shape, at, dtype))};
  std::vector<Tensor> data = {inputs[0]->data, Pick(r.roi, roi),
                              Pick(r.scales, chosen), Pick(r.sizes, chosen)};
  for (size_t i = 1; i < data.size(); ++i) {
    std::string name = "in." + std::to_string(i);
    inputs.push_back(data[i].defined() ? graph.AddInitializer(name, data[i])
                                       : nullptr);
  }
  Attributes attributes = c.node.attributes;
  attributes["axes"] = Range(1, static_cast<int64_t>(shape.size()) + 1);
  attributes["extrapolation_value"] = 0.0f;  // a constant has no slope
  Node* node = graph.AddNode("Resize", inputs, {"y"}, attributes);
  node->name = c.node.name;
  InferNode(*node, graph.opset);
  Check(node->out(0)->concrete() && *node->out(0)->shape == result, "[",
        c.node.Where(), "] expected axes that are resized one by one, got ",
        node->out(0)->shape ? ToString(*node->out(0)->shape) : "no shape",
        " in place of ", ToString(result));
  Tensor y = c.evaluator.Evaluate(*node, data)[0];
  int64_t size = result[at + 1], inner = Strides(result)[at + 1];
  Tensor matrix = Tensor::Allocate(DType::kDouble, {result[0], size});
  for (int64_t i = 0; i < matrix.size(); ++i) {
    int64_t row = i / size * (y.size() / result[0]);
    matrix.data<double>()[i] = DoubleAt(y, row + i % size * inner);
  }
  return ConvertTo(matrix, c.Dy()->dtype);
}

bool IsIdentity(const Tensor& matrix) {
  if (matrix.dim(0) != matrix.dim(1)) return false;
  for (int64_t i = 0; i < matrix.size(); ++i) {
    bool diagonal = i / matrix.dim(1) == i % matrix.dim(1);
    if (DoubleAt(matrix, i) != (diagonal ? 1 : 0)) return false;
  }
  return true;
}

// dx (…, X, …) = matrix (X, Y) · dy (…, Y, …) along one axis.
Value* Apply(Builder& b, Value* dy, int64_t axis, const Tensor& matrix) {
  Shape shape = *dy->shape;
  int64_t before = 1, behind = 1;
  for (int64_t i = 0; i < dy->rank(); ++i) {
    (i < axis ? before : behind) *= i == axis ? 1 : dy->dim(i);
  }
  Value* rows = b.Reshape(dy, {before, dy->dim(axis), behind});
  Value* dx = b.Op("MatMul", {b.Constant(matrix), rows});
  shape[static_cast<size_t>(axis)] = matrix.dim(0);
  return b.Reshape(dx, shape);
}

Value* Resize(C& c) {
  Value* dx = c.Dy();
  const Shape& x = *c.In(0)->shape;
  if (NumElements(x) == 0 || NumElements(*dx->shape) == 0) {
    return Filled(c.b, 0, dx, x);
  }
  Resized r = Arguments(c);
  for (size_t i = 0; i < r.axes.size(); ++i) {
    Tensor matrix = Matrix(c, r, i);
    if (!IsIdentity(matrix)) dx = Apply(c.b, dx, r.axes[i], matrix);
  }
  return dx;
}

}  // namespace

void RegisterResizeGradients(GradientRegistry& r) {
  r.Add("Resize", Unary<Resize>);
}

}  // namespace onnx_fp8
