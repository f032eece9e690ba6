// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

struct Pads {
  std::vector<int64_t> begin, end;  // one per axis of x; negative ones cut
};

Pads PadsOf(C& c) {
  size_t rank = c.In(0)->shape->size();
  std::vector<int64_t> pads = ConstantInts(c, 1, "pads");
  std::vector<int64_t> axes =
      ConstantInts(c, 3, "axes", Range(0, static_cast<int64_t>(rank)));
  Check(pads.size() == 2 * axes.size(), "[", c.node.Where(), "] expected ",
        2 * axes.size(), " pads, got ", pads.size());
  Pads all{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0)};
  for (size_t i = 0; i < axes.size(); ++i) {
    size_t axis = static_cast<size_t>(
        NormalizeAxis(axes[i], static_cast<int64_t>(rank), c.node.Where()));
    all.begin[axis] = pads[i];
    all.end[axis] = pads[axes.size() + i];
  }
  return all;
}

// The element of the axis at each place of the padded axis. Elements that
// negative pads cut off take no part in the padding.
std::vector<int64_t> Sources(const std::string& mode, int64_t size,
                             int64_t begin, int64_t end) {
  int64_t low = std::max<int64_t>(-begin, 0);
  int64_t high = size - std::max<int64_t>(-end, 0);
  int64_t n = high - low;
  std::vector<int64_t> sources;
  for (int64_t i = -begin; i < size + end; ++i) {
    int64_t j = i - low;
    if (mode == "edge") {
      j = std::clamp<int64_t>(j, 0, n - 1);
    } else if (mode == "wrap") {
      j = ((j % n) + n) % n;
    } else {  // reflect: period 2 (n - 1), the edges are not repeated
      int64_t period = std::max<int64_t>(2 * (n - 1), 1);
      j = ((j % period) + period) % period;
      j = std::min(j, period - j);
      if (n == 1) j = 0;
    }
    sources.push_back(low + j);
  }
  return sources;
}

// The padding is Gather axis by axis, last axis first; the gradient goes in the
// other order.
Value* PadFromData(C& c, const std::string& mode) {
  Pads pads = PadsOf(c);
  Value* dx = c.Dy();
  const Shape& x = *c.In(0)->shape;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    if (pads.begin[axis] == 0 && pads.end[axis] == 0) continue;
    std::vector<int64_t> sources =
        Sources(mode, x[axis], pads.begin[axis], pads.end[axis]);
    Shape shape = *dx->shape;
    shape[axis] = x[axis];
    dx = c.b.Ours("GatherGrad", {dx, c.b.Ints(sources)},
                  {{"axis", static_cast<int64_t>(axis)}, {"shape", shape}});
  }
  return dx;
}

void Pad(C& c) {
  std::string mode = c.node.String("mode", "constant");
  Check(mode == "constant" || mode == "edge" || mode == "reflect" ||
            mode == "wrap",
        "[", c.node.Where(),
        "] expected mode constant, edge, reflect or wrap, "
        "got ",
        mode);
  if (mode != "constant") {
    if (c.Needs(0)) c.Set(0, PadFromData(c, mode));
    return;
  }
  std::vector<int64_t> cut = PadsOf(c).begin;
  for (int64_t& begin : cut) begin = -begin;
  Value* dx = Place(c.b, c.Dy(), cut, *c.In(0)->shape);
  c.Set(0, dx);
  if (c.Needs(2)) {  // the fill value: elements of dy outside of x
    Value* all = c.b.SumTo(c.Dy(), {});
    c.Set(2, c.b.Reshape(c.b.Sub(all, c.b.SumTo(dx, {})), *c.In(2)->shape));
  }
}

}  // namespace

void RegisterPadGradients(GradientRegistry& r) { r.Add("Pad", Pad); }

}  // namespace onnx_fp8
