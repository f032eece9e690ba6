// SPDX-License-Identifier: Apache-2.0
//
// GridSample as of opset 20, over any number of spatial axes. Formulas:
// PyTorch's grid_sample, as in onnxruntime.
// onnx/reference/ops/op_grid_sample.py moves positions of mode cubic, too, that
// lie outside.
#include <algorithm>
#include <cmath>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

enum class SampleMode { kNearest, kLinear, kCubic };
enum class PaddingMode { kZeros, kBorder, kReflection };

struct SampleOptions {
  SampleMode mode;
  PaddingMode padding;
  bool align_corners;
  bool exact;  // the grid holds doubles
};

SampleOptions SampleOptionsOf(const KernelContext& ctx) {
  return {ChoiceIn<SampleMode>(ctx, "mode", "linear",
                               {"nearest", "linear", "cubic"}),
          ChoiceIn<PaddingMode>(ctx, "padding_mode", "zeros",
                                {"zeros", "border", "reflection"}),
          ctx.Int("align_corners", 0) != 0,
          ctx.In(1).dtype() == DType::kDouble};
}

// Mirrors x at the ends of [low, high] until it lies inside.
double Reflect(double x, double low, double high) {
  double range = high - low;
  if (range <= 0) return low;
  double distance = std::fmod(std::abs(x - low), 2 * range);
  return low + std::min(distance, 2 * range - distance);
}

// Elements of one axis and their weights; at most four.
struct AxisTaps {
  int count = 0;
  int64_t index[4];
  double weight[4];
};

// The element at position i, which may lie outside: its index, or -1 for zero.
int64_t ElementAt(const SampleOptions& options, double i, int64_t size) {
  auto last = static_cast<double>(size - 1);
  if (i >= 0 && i <= last) return static_cast<int64_t>(i);
  switch (options.padding) {
    case PaddingMode::kZeros:
      return -1;
    case PaddingMode::kBorder:
      return i < 0 ? 0 : size - 1;
    case PaddingMode::kReflection:
      break;
  }
  double edge = options.align_corners ? 0 : 0.5;
  // Halfway between two elements if the edge is mirrored at itself.
  double inside = std::floor(Reflect(i, -edge, last + edge));
  return static_cast<int64_t>(std::clamp(inside, 0.0, last));
}

// REQUIRES: size > 0. -1 … 1 in `at` spans the axis.
AxisTaps TapsOf(const SampleOptions& options, double at, int64_t size) {
  auto length = static_cast<double>(size);
  double x = options.align_corners ? (at + 1) / 2 * (length - 1)
                                   : ((at + 1) * length - 1) / 2;
  // Rounded as grids of floats are, because that decides the nearest element.
  if (!options.exact) x = static_cast<float>(x);
  // No finite position: take the element before the first.
  if (!std::isfinite(x)) x = -1;
  if (options.mode == SampleMode::kNearest) x = std::nearbyint(x);
  double edge = options.align_corners ? 0 : 0.5;
  // Cubic interpolation goes on outside, from elements of the padding.
  bool outside = x < -edge || x > length - 1 + edge;
  if (outside && options.mode != SampleMode::kCubic) {
    if (options.padding == PaddingMode::kBorder) {
      x = std::clamp(x, 0.0, length - 1);
    } else if (options.padding == PaddingMode::kReflection) {
      x = Reflect(x, -edge, length - 1 + edge);
    }
  }
  AxisTaps taps;
  double left = std::floor(x), t = x - left;
  auto add = [&](double index, double weight) {
    taps.index[taps.count] = ElementAt(options, index, size);
    taps.weight[taps.count++] = weight;
  };
  if (options.mode == SampleMode::kNearest) {
    add(left, 1);
  } else if (options.mode == SampleMode::kLinear) {
    add(left, 1 - t);
    add(left + 1, t);
  } else {
    // Keys' cubic interpolation with a = -0.75.
    constexpr double a = -0.75;
    auto near = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    auto far = [](double d) {
      return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    };
    add(left - 1, far(t + 1));
    add(left, near(t));
    add(left + 1, near(1 - t));
    add(left + 2, far(2 - t));
  }
  return taps;
}

// The products of the taps of all axes, without taps that read zeros.
void Multiply(const std::vector<AxisTaps>& axes,
              std::span<const int64_t> strides,
              std::vector<std::pair<int64_t, double>>& all) {
  all.assign(1, {0, 1.0});
  std::vector<std::pair<int64_t, double>> next;
  for (size_t d = 0; d < axes.size(); ++d) {
    next.clear();
    for (const auto& [offset, weight] : all) {
      for (int k = 0; k < axes[d].count; ++k) {
        if (axes[d].index[k] < 0) continue;
        next.push_back({offset + axes[d].index[k] * strides[d],
                        weight * axes[d].weight[k]});
      }
    }
    all.swap(next);
  }
}

// x (N, C, in…), grid (N, out…, d) → y (N, C, out…). A grid entry names the
// axes from the last to the first.
template <typename T>
void Sample(const SampleOptions& options, const Tensor& x, const Tensor& grid,
            Tensor& y) {
  std::span<const int64_t> sizes = std::span(x.shape()).subspan(2);
  std::vector<int64_t> strides = Strides(sizes);
  size_t axes = sizes.size();
  int64_t channels = x.dim(1), in = NumElements(sizes);
  int64_t places = y.size() / (y.dim(0) * channels);
  ParallelFor(y.dim(0) * places, RowsPerTask(16 * channels),
              [&](int64_t begin, int64_t end) {
                std::vector<AxisTaps> taps(axes);
                std::vector<std::pair<int64_t, double>> all;
                for (int64_t i = begin; i < end; ++i) {
                  int64_t n = i / places, place = i % places;
                  for (size_t d = 0; d < axes; ++d) {
                    auto entry = static_cast<int64_t>(axes) * (i + 1) - 1 -
                                 static_cast<int64_t>(d);
                    taps[d] =
                        TapsOf(options, grid.data<double>()[entry], sizes[d]);
                  }
                  Multiply(taps, strides, all);
                  for (int64_t channel = n * channels;
                       channel < (n + 1) * channels; ++channel) {
                    const T* from = x.data<T>() + channel * in;
                    double sum = 0;
                    for (const auto& [offset, weight] : all) {
                      sum += weight * static_cast<double>(from[offset]);
                    }
                    y.data<T>()[channel * places + place] = static_cast<T>(sum);
                  }
                }
              });
}

void GridSample(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const Tensor& grid = Operand(ctx, 1);
  SampleOptions options = SampleOptionsOf(ctx);
  Check(IsFloat(x.dtype()) && IsFloat(grid.dtype()), "[", ctx.Where(),
        "] expected floats, got ", Name(x.dtype()), " and ",
        Name(grid.dtype()));
  Check(x.rank() >= 3 && grid.rank() == x.rank() &&
            grid.dim(-1) == x.rank() - 2 && grid.dim(0) == x.dim(0),
        "[", ctx.Where(), "] expected a grid of shape (N, …, ", x.rank() - 2,
        ") for x ", ToString(x.shape()), ", got ", ToString(grid.shape()));
  Shape shape = {x.dim(0), x.dim(1)};
  shape.insert(shape.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  Check(x.size() > 0, "[", ctx.Where(), "] expected elements to sample, got ",
        ToString(x.shape()));
  bool small = ByteSize(x.dtype()) < 4;
  Tensor places = ConvertTo(grid, DType::kDouble);
  Tensor from = small ? ConvertTo(x, DType::kFloat) : x;
  Tensor to = small ? Tensor::Allocate(DType::kFloat, shape) : y;
  DispatchFloat(from.dtype(), ctx.Where(),
                [&]<typename T>() { Sample<T>(options, from, places, to); });
  if (small) CopyBytes(ConvertTo(to, x.dtype()), y);
}

}  // namespace

void RegisterGridSample(KernelRegistry& r) { r.Add("GridSample", GridSample); }

}  // namespace onnx_fp8
