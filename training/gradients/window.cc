// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/window.h"

#include <algorithm>

#include "base/check.h"
#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

// Extent of a kernel with holes.
int64_t Extent(const WindowPlaces& w, size_t i) {
  return (w.kernel[i] - 1) * w.dilations[i] + 1;
}

WindowPlaces Basics(const Node& node, std::vector<int64_t> kernel,
                    const Shape& x, const Shape& y) {
  size_t n = kernel.size();
  Check(x.size() == n + 2 && y.size() == n + 2, "[", node.Where(),
        "] expected x (N, C, …) with ", n, " spatial axes, got ", ToString(x));
  std::vector<int64_t> ones(n, 1), zeros(2 * n, 0);
  WindowPlaces w;
  w.kernel = std::move(kernel);
  w.strides = node.Ints("strides", ones);
  w.dilations = node.Ints("dilations", ones);
  std::vector<int64_t> pads = node.Ints("pads", zeros);
  Check(
      w.strides.size() == n && w.dilations.size() == n && pads.size() == 2 * n,
      "[", node.Where(), "] expected strides, dilations and pads for ", n,
      " axes");
  auto middle = pads.begin() + static_cast<std::ptrdiff_t>(n);
  w.begin.assign(pads.begin(), middle);
  w.declared_end.assign(middle, pads.end());
  return w;
}

void SetEnds(WindowPlaces& w, const Shape& large, const Shape& small) {
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    int64_t reach = (small[i + 2] - 1) * w.strides[i] + Extent(w, i);
    w.end.push_back(reach - w.begin[i] - large[i + 2]);
  }
}

// Splits `total` over both ends; the odd one goes to the end if `upper`.
void Share(WindowPlaces& w, size_t i, int64_t total, bool upper) {
  total = std::max<int64_t>(total, 0);
  w.begin[i] = upper ? total / 2 : total - total / 2;
  w.declared_end[i] = total - w.begin[i];
}

std::vector<int64_t> BothEnds(const WindowPlaces& w) {
  std::vector<int64_t> pads = w.begin;
  for (int64_t end : w.end) pads.push_back(std::max<int64_t>(end, 0));
  return pads;
}

}  // namespace

WindowPlaces WindowOfConv(const Node& node, std::vector<int64_t> kernel,
                          const Shape& x, const Shape& y) {
  WindowPlaces w = Basics(node, std::move(kernel), x, y);
  std::string auto_pad = node.String("auto_pad", "NOTSET");
  for (size_t i = 0; auto_pad != "NOTSET" && i < w.kernel.size(); ++i) {
    int64_t total = (y[i + 2] - 1) * w.strides[i] + Extent(w, i) - x[i + 2];
    Share(w, i, auto_pad == "VALID" ? 0 : total, auto_pad == "SAME_UPPER");
  }
  SetEnds(w, x, y);
  return w;
}

WindowPlaces WindowOfConvTranspose(const Node& node,
                                   std::vector<int64_t> kernel, const Shape& x,
                                   const Shape& y) {
  WindowPlaces w = Basics(node, std::move(kernel), x, y);
  std::string auto_pad = node.String("auto_pad", "NOTSET");
  bool given = node.Has("output_shape");
  if (given || auto_pad != "NOTSET") {
    std::vector<int64_t> added =
        node.Ints("output_padding", std::vector<int64_t>(w.kernel.size(), 0));
    for (size_t i = 0; i < w.kernel.size(); ++i) {
      int64_t total =
          (x[i + 2] - 1) * w.strides[i] + added[i] + Extent(w, i) - y[i + 2];
      if (!given && auto_pad == "VALID") total = 0;
      Share(w, i, total, auto_pad == "SAME_UPPER");
    }
  }
  SetEnds(w, y, x);
  return w;
}

Attributes ConvAttributes(const WindowPlaces& w, int64_t group) {
  return {{"kernel_shape", w.kernel},
          {"strides", w.strides},
          {"dilations", w.dilations},
          {"group", group},
          {"pads", BothEnds(w)}};
}

Attributes ConvTransposeAttributes(const WindowPlaces& w, int64_t group) {
  Attributes attributes = ConvAttributes(w, group);
  std::vector<int64_t> added;
  for (int64_t end : w.end) added.push_back(std::max<int64_t>(-end, 0));
  if (std::ranges::any_of(added, [](int64_t a) { return a != 0; })) {
    attributes["output_padding"] = added;
  }
  return attributes;
}

Value* CutUnread(Builder& b, Value* large, const WindowPlaces& w) {
  for (size_t i = 0; i < w.end.size(); ++i) {
    if (w.end[i] >= 0) continue;
    int64_t axis = static_cast<int64_t>(i) + 2;
    large = SliceAxis(b, large, axis, 0, large->dim(axis) + w.end[i]);
  }
  return large;
}

}  // namespace onnx_fp8
