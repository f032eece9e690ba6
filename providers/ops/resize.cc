// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/resize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

struct ResizeAxis {
  int64_t from, to;  // sizes
  double scale;
  double length;              // scale * from, not rounded to a size
  double roi_begin, roi_end;  // for tf_crop_and_resize, in 0 … 1

  bool Changes() const {
    return from != to || scale != 1 || roi_begin != 0 || roi_end != 1;
  }
};

enum class Mode { kNearest, kLinear, kCubic };
enum class Coordinates {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kCropAndResize,
};
enum class NearestMode { kPreferFloor, kPreferCeil, kFloor, kCeil };
enum class AspectRatio { kStretch, kNotLarger, kNotSmaller };

struct ResizeOptions {
  Mode mode;
  Coordinates coordinates;
  NearestMode nearest;
  bool antialias, exclude_outside;
  double cubic_a;
};

ResizeOptions ResizeOptionsOf(const KernelContext& ctx) {
  ResizeOptions o = {
      ChoiceIn<Mode>(ctx, "mode", "nearest", {"nearest", "linear", "cubic"}),
      ChoiceIn<Coordinates>(
          ctx, "coordinate_transformation_mode", "half_pixel",
          {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
           "align_corners", "asymmetric", "tf_crop_and_resize"}),
      ChoiceIn<NearestMode>(
          ctx, "nearest_mode", "round_prefer_floor",
          {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}),
      ctx.Int("antialias", 0) != 0,
      ctx.Int("exclude_outside", 0) != 0,
      ctx.Float("cubic_coeff_a", -0.75f)};
  Check(!o.antialias || o.mode != Mode::kNearest, "[", ctx.Where(),
        "] expected mode linear or cubic with antialias, got nearest");
  return o;
}

// ---- sizes

bool HasElements(const KernelContext& ctx, size_t i) {
  return ctx.HasIn(i) && ctx.In(i).size() > 0;
}

std::vector<double> FloatsIn(const KernelContext& ctx, size_t i, size_t count) {
  const Tensor& x = ctx.In(i);
  Check(IsFloat(x.dtype()) && x.size() == static_cast<int64_t>(count), "[",
        ctx.Where(), "] expected ", count, " floats as operand ", i, ", got ",
        Name(x.dtype()), ToString(x.shape()));
  std::vector<double> values;
  for (int64_t k = 0; k < x.size(); ++k) values.push_back(DoubleAt(x, k));
  return values;
}

void SizesFromScales(const KernelContext& ctx, const std::vector<int64_t>& axes,
                     std::vector<ResizeAxis>& all) {
  std::vector<double> scales = FloatsIn(ctx, 2, axes.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    ResizeAxis& axis = all[static_cast<size_t>(axes[k])];
    axis.scale = scales[k];
    // In float, like ONNX's shape inference.
    axis.length =
        static_cast<float>(axis.from) * static_cast<float>(axis.scale);
    Check(axis.scale > 0 && axis.length < 0x1p60, "[", ctx.Where(),
          "] expected scales above 0, got ", axis.scale);
    axis.to = static_cast<int64_t>(std::floor(axis.length));
  }
}

void SizesFromSizes(const KernelContext& ctx, const std::vector<int64_t>& axes,
                    std::vector<ResizeAxis>& all) {
  std::vector<int64_t> sizes = IntsIn(ctx, 3);
  Check(sizes.size() == axes.size(), "[", ctx.Where(), "] expected ",
        axes.size(), " sizes, got ", sizes.size());
  auto policy =
      ChoiceIn<AspectRatio>(ctx, "keep_aspect_ratio_policy", "stretch",
                            {"stretch", "not_larger", "not_smaller"});
  float shared =
      policy == AspectRatio::kNotLarger ? std::numeric_limits<float>::max() : 0;
  for (size_t k = 0; k < axes.size(); ++k) {
    ResizeAxis& axis = all[static_cast<size_t>(axes[k])];
    Check(sizes[k] >= 0 && (axis.from > 0 || sizes[k] == 0), "[", ctx.Where(),
          "] expected a size for axis ", axes[k], " of ", axis.from,
          " elements, got ", sizes[k]);
    axis.to = sizes[k];
    if (axis.from > 0) {
      axis.scale =
          static_cast<double>(axis.to) / static_cast<double>(axis.from);
      auto scale = static_cast<float>(axis.to) / static_cast<float>(axis.from);
      shared = policy == AspectRatio::kNotLarger ? std::min(shared, scale)
                                                 : std::max(shared, scale);
    }
  }
  for (int64_t d : axes) {
    ResizeAxis& axis = all[static_cast<size_t>(d)];
    if (policy != AspectRatio::kStretch && axis.from > 0) {
      axis.scale = shared;
      axis.to = std::llround(shared * static_cast<float>(axis.from));
    }
    axis.length = axis.scale * static_cast<double>(axis.from);
  }
}

std::vector<ResizeAxis> AxesOf(const KernelContext& ctx,
                               const ResizeOptions& options) {
  const Tensor& x = Operand(ctx, 0);
  std::vector<ResizeAxis> all;
  for (int64_t size : x.shape()) {
    all.push_back({size, size, 1, static_cast<double>(size), 0, 1});
  }
  std::vector<int64_t> axes(x.shape().size());
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.Has("axes")) axes = AxesIn(ctx, ctx.Ints("axes"), x.rank());
  Check(HasElements(ctx, 2) != HasElements(ctx, 3) || axes.empty(), "[",
        ctx.Where(), "] expected either scales or sizes");
  if (HasElements(ctx, 2)) SizesFromScales(ctx, axes, all);
  if (HasElements(ctx, 3)) SizesFromSizes(ctx, axes, all);
  if (options.coordinates == Coordinates::kCropAndResize) {
    Check(HasElements(ctx, 1), "[", ctx.Where(), "] expected a roi, got none");
    std::vector<double> roi = FloatsIn(ctx, 1, 2 * axes.size());
    for (size_t k = 0; k < axes.size(); ++k) {
      ResizeAxis& axis = all[static_cast<size_t>(axes[k])];
      axis.roi_begin = roi[k];
      axis.roi_end = roi[axes.size() + k];
    }
  }
  return all;
}

// ---- tables

// The position in x of element i of the result.
double SourceOf(Coordinates mode, const ResizeAxis& axis, int64_t i) {
  auto x = static_cast<double>(i), last = static_cast<double>(axis.from - 1);
  if (mode == Coordinates::kAlignCorners) {
    // The last element of the result is the last element of x, as in PyTorch
    // and onnxruntime.
    return axis.to == 1 ? 0 : x * last / static_cast<double>(axis.to - 1);
  }
  if (mode == Coordinates::kAsymmetric) return x / axis.scale;
  if (mode == Coordinates::kCropAndResize) {
    double extent = axis.roi_end - axis.roi_begin;
    double inside = axis.to > 1
                        ? x * extent * last / static_cast<double>(axis.to - 1)
                        : extent * last / 2;
    return inside + axis.roi_begin * last;
  }
  double source = (x + 0.5) / axis.scale - 0.5;
  if (mode == Coordinates::kPytorchHalfPixel) return axis.to > 1 ? source : 0;
  if (mode == Coordinates::kHalfPixelSymmetric) {
    // Keeps the center if `to` is not the exact length.
    double adjustment = static_cast<double>(axis.to) / axis.length;
    source += static_cast<double>(axis.from) / 2 * (1 - adjustment);
  }
  return source;
}

double NearestOf(NearestMode mode, double x) {
  switch (mode) {
    case NearestMode::kFloor:
      return std::floor(x);
    case NearestMode::kCeil:
      return std::ceil(x);
    case NearestMode::kPreferCeil:
      return std::floor(x + 0.5);
    case NearestMode::kPreferFloor:
      break;
  }
  return std::ceil(x - 0.5);
}

// The triangle or Keys' cubic, at distance x.
double Kernel1d(const ResizeOptions& options, double x) {
  x = std::abs(x);
  if (options.mode == Mode::kLinear) return std::max(1 - x, 0.0);
  double a = options.cubic_a;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

Taps TapsOf(const ResizeOptions& options, const ResizeAxis& axis, int64_t i) {
  double x = SourceOf(options.coordinates, axis, i);
  auto last = static_cast<double>(axis.from - 1);
  if (options.coordinates == Coordinates::kCropAndResize &&
      !(x >= 0 && x <= last)) {
    return {};
  }
  double reach = options.mode == Mode::kLinear ? 1 : 2;
  double shrink = options.antialias ? std::min(axis.scale, 1.0) : 1.0;
  // Positions further outside give the same result.
  double margin = reach / shrink + 2;
  x = std::clamp(x, -margin, last + margin);
  auto clamp = [&](double index) {
    return static_cast<int64_t>(std::clamp(index, 0.0, last));
  };
  if (options.mode == Mode::kNearest) {
    return {{clamp(NearestOf(options.nearest, x))}, {1}};
  }
  // The element to the left of x, and all around it that the kernel covers.
  double left = std::ceil(x) - 1;
  double start = std::floor(-reach / shrink) + 1;
  Taps taps;
  double total = 0;
  for (double k = start; k < 2 - start; ++k) {
    double index = left + k;
    double weight = Kernel1d(options, shrink * (index - x));
    if (options.exclude_outside && (index < 0 || index > last)) weight = 0;
    taps.index.push_back(clamp(index));
    taps.weight.push_back(weight);
    total += weight;
  }
  if (options.antialias || options.exclude_outside) {
    if (total == 0) return {{clamp(x)}, {1}};
    for (double& weight : taps.weight) weight /= total;
  }
  return taps;
}

}  // namespace

Shape ResizedShape(const KernelContext& ctx) {
  Shape shape;
  for (const ResizeAxis& axis : AxesOf(ctx, ResizeOptionsOf(ctx))) {
    shape.push_back(axis.to);
  }
  return shape;
}

ResizeLayout ResizeLayoutOf(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  ResizeOptions options = ResizeOptionsOf(ctx);
  ResizeLayout layout = {{}, options.mode == Mode::kNearest, {}};
  std::vector<ResizeAxis> axes = AxesOf(ctx, options);
  for (const ResizeAxis& axis : axes) layout.shape.push_back(axis.to);
  Check(x.size() > 0, "[", ctx.Where(), "] expected elements to resize, got ",
        ToString(x.shape()));
  for (const ResizeAxis& axis : axes) {
    ResizeTable& table =
        layout.tables.emplace_back(ResizeTable{axis.from, axis.Changes(), {}});
    for (int64_t i = 0; i < axis.to; ++i) {
      table.taps.push_back(TapsOf(options, axis, i));
    }
  }
  return layout;
}

std::vector<std::vector<int64_t>> NearestTables(const ResizeLayout& layout,
                                                const Shape& x) {
  std::vector<int64_t> strides = Strides(x);
  std::vector<std::vector<int64_t>> tables(layout.tables.size());
  for (size_t d = 0; d < tables.size(); ++d) {
    for (const Taps& taps : layout.tables[d].taps) {
      tables[d].push_back(taps.index.empty() ? -1 : taps.index[0] * strides[d]);
    }
  }
  return tables;
}

}  // namespace onnx_fp8
