// SPDX-License-Identifier: Apache-2.0
//
// Ops that only move elements.
#include <algorithm>

#include "graph/views.h"
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

Value* Reshape(C& c) { return c.b.Reshape(c.Dy(), *c.In(0)->shape); }

// The engine sums over the axes that Expand repeated.
Value* Expand(C& c) { return c.Dy(); }

Value* Transpose(C& c) {
  std::vector<int64_t> reversed = Range(0, c.In(0)->rank());
  std::ranges::reverse(reversed);
  std::vector<int64_t> perm = c.node.Ints("perm", reversed);
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  return c.b.Transpose(c.Dy(), inverse);
}

void Concat(C& c) {
  Builder& b = c.b;
  size_t n = c.node.inputs().size();
  int64_t axis =
      NormalizeAxis(c.node.Int("axis", 0), c.Dy()->rank(), c.node.Where());
  std::vector<int64_t> sizes;
  size_t wanted = 0;
  for (size_t i = 0; i < n; ++i) {
    sizes.push_back(c.In(i)->dim(axis));
    wanted += c.Needs(i);
  }
  if (wanted == n && n > 1) {
    std::vector<Value*> parts =
        b.Ops("Split", {c.Dy(), b.Ints(sizes)}, n, {{"axis", axis}});
    for (size_t i = 0; i < n; ++i) c.Set(i, parts[i]);
    return;
  }
  int64_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    if (c.Needs(i)) {
      c.Set(i, SliceAxis(b, c.Dy(), axis, begin, begin + sizes[i]));
    }
    begin += sizes[i];
  }
}

Value* Split(C& c) {
  Builder& b = c.b;
  int64_t axis =
      NormalizeAxis(c.node.Int("axis", 0), c.In(0)->rank(), c.node.Where());
  std::vector<Value*> parts;
  for (size_t i = 0; i < c.node.outputs().size(); ++i) {
    parts.push_back(c.Dy(i) ? c.Dy(i)
                            : Filled(b, 0, c.In(0), *c.Out(i)->shape));
  }
  if (parts.size() == 1) return parts[0];
  return b.Op("Concat", parts, {{"axis", axis}});
}

// Undoes one axis of a Slice: element j of dy goes to first + j·step, step > 0.
// Returns dy with step-1 zeros between its elements.
Value* Spread(Builder& b, Value* dy, int64_t axis, int64_t step) {
  if (step == 1 || dy->dim(axis) <= 1) return dy;
  size_t at = static_cast<size_t>(axis);
  Shape split = *dy->shape;
  split.insert(split.begin() + axis + 1, 1);
  Shape wide = split;
  wide[at + 1] = step;
  Value* zeros = Place(b, b.Reshape(dy, split),
                       std::vector<int64_t>(split.size(), 0), wide);
  Shape merged = *dy->shape;
  merged[at] *= step;
  return SliceAxis(b, b.Reshape(zeros, merged), axis, 0, merged[at] - step + 1);
}

Value* Slice(C& c) {
  Builder& b = c.b;
  const Shape& shape = *c.In(0)->shape;
  int64_t rank = c.In(0)->rank();
  if (NumElements(*c.Dy()->shape) == 0) return Filled(b, 0, c.In(0), shape);
  std::vector<int64_t> starts = ConstantInts(c, 1, "starts");
  std::vector<int64_t> axes =
      ConstantInts(c, 3, "axes", Range(0, static_cast<int64_t>(starts.size())));
  std::vector<int64_t> steps =
      ConstantInts(c, 4, "steps", std::vector<int64_t>(starts.size(), 1));
  Check(axes.size() == starts.size() && steps.size() == starts.size(), "[",
        c.node.Where(), "] expected as many axes and steps as starts");
  std::vector<int64_t> begin(shape.size(), 0);
  Value* dy = c.Dy();
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = NormalizeAxis(axes[i], rank, c.node.Where());
    int64_t size = c.In(0)->dim(axis);
    int64_t step = steps[i];
    int64_t start = starts[i] < 0 ? starts[i] + size : starts[i];
    start = std::clamp<int64_t>(start, 0, step < 0 ? size - 1 : size);
    int64_t count = dy->dim(axis);
    if (count == 1) step = 1;
    if (step < 0) {  // the same elements read forwards
      dy = b.Op("Slice", {dy, b.Ints({-1}), b.Ints({INT64_MIN}), b.Ints({axis}),
                          b.Ints({-1})});
      start += (count - 1) * step;
      step = -step;
    }
    dy = Spread(b, dy, axis, step);
    begin[static_cast<size_t>(axis)] = start;
  }
  return Place(b, dy, begin, shape);
}

// Each axis of y is (repeats, size).
Value* Tile(C& c) {
  std::vector<int64_t> repeats = ConstantInts(c, 1, "repeats");
  const Shape& shape = *c.In(0)->shape;
  Check(repeats.size() == shape.size(), "[", c.node.Where(), "] expected ",
        shape.size(), " repeats, got ", repeats.size());
  Shape split;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < shape.size(); ++i) {
    axes.push_back(static_cast<int64_t>(split.size()));
    split.push_back(repeats[i]);
    split.push_back(shape[i]);
  }
  return c.b.ReduceSum(c.b.Reshape(c.Dy(), split), axes, false);
}

// The inverse permutation: y (N, C·s², H, W) <-> x (N, C, H·s, W·s).
Value* DepthToSpace(C& c) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  int64_t s = c.node.Int("blocksize", 1);
  int64_t depth = x[1] / (s * s);
  Value* split = b.Reshape(c.Dy(), {x[0], depth, x[2], s, x[3], s});
  // DCR has depth as blocks × C, CRD as C × blocks.
  bool crd = c.node.String("mode", "DCR") == "CRD";
  Value* moved =
      b.Transpose(split, crd ? std::vector<int64_t>{0, 1, 3, 5, 2, 4}
                             : std::vector<int64_t>{0, 3, 5, 1, 2, 4});
  return b.Reshape(moved, x);
}

Value* SpaceToDepth(C& c) {
  Builder& b = c.b;
  const Shape& x = *c.In(0)->shape;
  int64_t s = c.node.Int("blocksize", 1);
  bool crd = c.node.String("mode", "DCR") == "CRD";
  int64_t h = x[2] / s, w = x[3] / s;
  Value* moved = crd ? b.Transpose(b.Reshape(c.Dy(), {x[0], x[1], s, s, h, w}),
                                   {0, 1, 4, 2, 5, 3})
                     : b.Transpose(b.Reshape(c.Dy(), {x[0], s, s, x[1], h, w}),
                                   {0, 3, 4, 1, 5, 2});
  return b.Reshape(moved, x);
}

Value* Trilu(C& c) {
  std::vector<Value*> inputs = {c.Dy()};
  if (c.In(1)) inputs.push_back(c.In(1));
  return c.b.Op("Trilu", inputs, {{"upper", c.node.Int("upper", 1)}});
}

// Reversing a part of each sequence twice restores it.
Value* ReverseSequence(C& c) {
  return c.b.Op("ReverseSequence", {c.Dy(), c.In(1)}, c.node.attributes);
}

// Gradients of activations are rounded as the activations are; gradients of
// parameters stay as precise as they come.
Value* RoundTo(C& c) {
  if (WeightBehind(c.In(0))) return c.Dy();
  return c.b.Ours("RoundTo", {c.Dy()}, c.node.attributes);
}

}  // namespace

void RegisterMovementGradients(GradientRegistry& r) {
  r.Add("Concat", Concat);
  r.Add("DepthToSpace", Unary<DepthToSpace>);
  r.Add("Expand", Unary<Expand>);
  r.Add("Flatten", Unary<Reshape>);
  r.Add("Reshape", Unary<Reshape>);
  r.Add("ReverseSequence", Unary<ReverseSequence>);
  r.Add("RoundTo", Unary<RoundTo>, kDomain);
  r.Add("Slice", Unary<Slice>);
  r.Add("SpaceToDepth", Unary<SpaceToDepth>);
  r.Add("Split", Unary<Split>, "", kAllOutputs);
  r.Add("Squeeze", Unary<Reshape>);
  r.Add("Tile", Unary<Tile>);
  r.Add("Transpose", Unary<Transpose>);
  r.Add("Trilu", Unary<Trilu>);
  r.Add("Unsqueeze", Unary<Reshape>);
}

}  // namespace onnx_fp8
