// SPDX-License-Identifier: Apache-2.0
//
// x (N,C,H,W), rois (R,4), batch_indices (R) → y (R,C,h,w): each bin of a
// region is the mean, or the largest, of samples between the elements of x.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Limit for one region: a larger one is no region of an image.
constexpr int64_t kMaxSamples = 1 << 26;

// Four elements of a plane and their weights.
struct Sample {
  std::array<int64_t, 4> at = {};
  std::array<double, 4> weight = {};
};

// The elements around a coordinate of an axis of `size`, and the second one's
// weight.
struct Neighbors {
  int64_t low, high;
  double weight;
};

Neighbors NeighborsOf(double place, int64_t size) {
  place = std::max(place, 0.0);
  auto low = static_cast<int64_t>(place);
  if (low >= size - 1) return {size - 1, size - 1, 0};
  return {low, low + 1, place - static_cast<double>(low)};
}

struct Region {
  int64_t height, width;  // of x
  int64_t rows, columns;  // of y
  double top, left, bin_height, bin_width;
  int64_t grid_rows, grid_columns;  // samples in a bin

  Sample At(double y, double x) const {
    Sample sample;
    if (y < -1 || y > static_cast<double>(height) || x < -1 ||
        x > static_cast<double>(width)) {
      return sample;  // outside: zeros
    }
    auto [y0, y1, wy] = NeighborsOf(y, height);
    auto [x0, x1, wx] = NeighborsOf(x, width);
    sample.at = {y0 * width + x0, y0 * width + x1, y1 * width + x0,
                 y1 * width + x1};
    sample.weight = {(1 - wy) * (1 - wx), (1 - wy) * wx, wy * (1 - wx),
                     wy * wx};
    return sample;
  }

  // Samples in the order of bins, then of places in a bin.
  std::vector<Sample> Samples() const {
    auto place = [](double start, double size, int64_t bin, int64_t i,
                    int64_t grid) {
      return start +
             size * (static_cast<double>(bin) + (static_cast<double>(i) + 0.5) /
                                                    static_cast<double>(grid));
    };
    std::vector<Sample> samples;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        for (int64_t i = 0; i < grid_rows; ++i) {
          double y = place(top, bin_height, row, i, grid_rows);
          for (int64_t j = 0; j < grid_columns; ++j) {
            samples.push_back(
                At(y, place(left, bin_width, column, j, grid_columns)));
          }
        }
      }
    }
    return samples;
  }
};

Region RegionOf(const KernelContext& ctx, const Tensor& x, const Tensor& rois,
                int64_t i) {
  double scale = ctx.Float("spatial_scale", 1);
  bool half = ChoiceIn<bool>(ctx, "coordinate_transformation_mode",
                             "half_pixel", {"output_half_pixel", "half_pixel"});
  auto corner = [&](int64_t k) {
    return DoubleAt(rois, 4 * i + k) * scale - (half ? 0.5 : 0);
  };
  Region r = {x.dim(2), x.dim(3), ctx.Int("output_height", 1),
              ctx.Int("output_width", 1)};
  r.left = corner(0);
  r.top = corner(1);
  double width = corner(2) - r.left, height = corner(3) - r.top;
  if (!half) {
    width = std::max(width, 1.0);
    height = std::max(height, 1.0);
  }
  r.bin_height = height / static_cast<double>(r.rows);
  r.bin_width = width / static_cast<double>(r.columns);
  auto ratio = static_cast<double>(ctx.Int("sampling_ratio", 0));
  double grid_rows = ratio > 0 ? ratio : std::ceil(r.bin_height);
  double grid_columns = ratio > 0 ? ratio : std::ceil(r.bin_width);
  double samples =
      std::max(grid_rows, 0.0) * std::max(grid_columns, 0.0) *
      static_cast<double>(std::max<int64_t>(r.rows * r.columns, 1));
  Check(samples <= static_cast<double>(kMaxSamples) &&
            !std::isnan(width + height),
        "[", ctx.Where(), "] expected regions of up to ", kMaxSamples,
        " samples, got one of ", width, " by ", height);
  // Without one of both there are none. The other may then be no integer.
  r.grid_rows = samples > 0 ? static_cast<int64_t>(grid_rows) : 0;
  r.grid_columns = samples > 0 ? static_cast<int64_t>(grid_columns) : 0;
  return r;
}

// The bin of one channel.
template <typename T>
T BinOf(const Sample* samples, int64_t count, const T* plane, bool largest) {
  double sum = 0, best = 0;
  for (int64_t s = 0; s < count; ++s) {
    double most = 0;
    for (size_t k = 0; k < 4; ++k) {
      double term =
          samples[s].weight[k] * static_cast<double>(plane[samples[s].at[k]]);
      sum += term;
      most = k == 0 ? term : std::max(most, term);
    }
    best = s == 0 ? most : std::max(best, most);
  }
  if (largest) return static_cast<T>(best);
  return static_cast<T>(sum / static_cast<double>(std::max<int64_t>(count, 1)));
}

void RoiAlign(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &rois = Operand(ctx, 1);
  Check(x.rank() == 4 && rois.rank() == 2 && rois.dim(1) == 4, "[", ctx.Where(),
        "] expected x (N,C,H,W) and rois (R,4), got ", ToString(x.shape()),
        " and ", ToString(rois.shape()));
  CheckSameDType(ctx, x, rois);
  std::vector<int64_t> images = IndicesIn(ctx, 2, x.dim(0));
  int64_t regions = rois.dim(0), channels = x.dim(1);
  int64_t rows = ctx.Int("output_height", 1);
  int64_t columns = ctx.Int("output_width", 1);
  Check(static_cast<int64_t>(images.size()) == regions && rows > 0 &&
            columns > 0 && x.dim(2) > 0 && x.dim(3) > 0,
        "[", ctx.Where(), "] expected an image for each of ", regions,
        " regions and sizes above 0, got ", images.size(), " and ", rows,
        " by ", columns);
  bool largest = ChoiceIn<bool>(ctx, "mode", "avg", {"avg", "max"});
  Tensor& y = ctx.Out(0, x.dtype(), {regions, channels, rows, columns});
  int64_t plane = x.dim(2) * x.dim(3), bins = rows * columns;
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    for (int64_t i = 0; i < regions; ++i) {
      Region region = RegionOf(ctx, x, rois, i);
      std::vector<Sample> samples = region.Samples();
      int64_t count = region.grid_rows * region.grid_columns;
      const T* image =
          x.data<T>() + images[static_cast<size_t>(i)] * channels * plane;
      T* to = y.data<T>() + i * channels * bins;
      ParallelFor(channels, RowsPerTask(4 * std::max<int64_t>(count, 1) * bins),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t c = begin; c < end; ++c) {
                      for (int64_t bin = 0; bin < bins; ++bin) {
                        to[c * bins + bin] =
                            BinOf(samples.data() + bin * count, count,
                                  image + c * plane, largest);
                      }
                    }
                  });
    }
  });
}

}  // namespace

void RegisterRoiAlign(KernelRegistry& r) { r.Add("RoiAlign", RoiAlign); }

}  // namespace onnx_fp8
