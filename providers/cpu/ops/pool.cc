// SPDX-License-Identifier: Apache-2.0
//
// MaxPool, AveragePool, LpPool and the global pools; x (N,C,spatial…).
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/divide_up.h"
#include "providers/ops/window.h"

namespace onnx_fp8 {
namespace {

// One output position and the input that it reads.
struct Place {
  Window::Axes start;               // input position of tap 0, may be outside
  Window::Axes tap_begin, tap_end;  // taps that lie inside the input
};

// Smallest k >= 0 with start + k · step >= bound, at most `taps`.
int64_t FirstTapFrom(int64_t bound, int64_t start, int64_t step, int64_t taps) {
  if (start >= bound) return 0;
  return std::min(DivideUp(bound - start, step), taps);
}

Place PlaceOf(const Window& w, int64_t position) {
  Window::Axes o = {position / (w.out[1] * w.out[2]),
                    position / w.out[2] % w.out[1], position % w.out[2]};
  Place p;
  for (size_t d = 0; d < 3; ++d) {
    p.start[d] = o[d] * w.stride[d] - w.pad[d];
    int64_t step = w.dilation[d], taps = w.kernel[d];
    p.tap_begin[d] = FirstTapFrom(0, p.start[d], step, taps);
    p.tap_end[d] = FirstTapFrom(w.in[d], p.start[d], step, taps);
  }
  return p;
}

// Taps inside the input.
int64_t CountInside(const Place& p) {
  int64_t count = 1;
  for (size_t d = 0; d < 3; ++d) {
    count *= std::max<int64_t>(p.tap_end[d] - p.tap_begin[d], 0);
  }
  return count;
}

// Taps inside the input or its padding, without taps that ceil_mode adds.
int64_t CountPadded(const Window& w, const Place& p) {
  int64_t count = 1;
  for (size_t d = 0; d < 3; ++d) {
    count *= FirstTapFrom(w.in[d] + w.pad_end[d], p.start[d], w.dilation[d],
                          w.kernel[d]);
  }
  return count;
}

// fn(offset in the plane) for every tap inside the input, in row-major order.
template <typename Fn>
void ForEachInput(const Window& w, const Place& p, Fn fn) {
  for (int64_t kd = p.tap_begin[0]; kd < p.tap_end[0]; ++kd) {
    int64_t id = p.start[0] + kd * w.dilation[0];
    for (int64_t kh = p.tap_begin[1]; kh < p.tap_end[1]; ++kh) {
      int64_t ih = p.start[1] + kh * w.dilation[1];
      int64_t line = (id * w.in[1] + ih) * w.in[2] + p.start[2];
      for (int64_t kw = p.tap_begin[2]; kw < p.tap_end[2]; ++kw) {
        fn(line + kw * w.dilation[2]);
      }
    }
  }
}

// fn(plane, place, index in y) for every output.
template <typename Fn>
void ForEachOutput(const Window& w, int64_t planes, Fn fn) {
  int64_t positions = Window::Product(w.out);
  ParallelFor(planes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      for (int64_t o = 0; o < positions; ++o) {
        fn(plane, PlaceOf(w, o), plane * positions + o);
      }
    }
  });
}

// Errors: the window reads only padding, so it has no maximum and no mean.
void CheckReads(const KernelContext& ctx, const Place& p) {
  Check(CountInside(p) > 0, "[", ctx.Where(),
        "] expected pads that leave input in every window, got a window "
        "without");
}

Window PoolWindow(const KernelContext& ctx) {
  Check(ctx.Has("kernel_shape"), "[", ctx.Where(),
        "] expected kernel_shape, got none");
  return WindowOver(ctx, ctx.In(0).shape(), ctx.Ints("kernel_shape"));
}

// Offset in the plane with the first axis fastest (storage_order 1).
int64_t ColumnMajor(const Window& w, int64_t offset) {
  int64_t i2 = offset % w.in[2], i1 = offset / w.in[2] % w.in[1];
  int64_t i0 = offset / (w.in[1] * w.in[2]);
  return i0 + w.in[0] * (i1 + w.in[1] * i2);
}

// NaN is larger than everything, as in PyTorch.
template <typename T>
bool IsLarger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(b)) return false;
    if (std::isnan(a)) return true;
  }
  return a > b;
}

void MaxPool(KernelContext& ctx) {
  const Tensor& x = ctx.In(0);
  Window w = PoolWindow(ctx);
  Shape shape = w.ShapeOf(x.dim(0), x.dim(1), w.out);
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  int64_t* indices = nullptr;
  if (ctx.HasOut(1)) indices = ctx.Out(1, DType::kInt64, shape).data<int64_t>();
  bool column_major = ctx.Int("storage_order", 0) != 0;
  int64_t plane_size = Window::Product(w.in);
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    ForEachOutput(w, x.dim(0) * x.dim(1),
                  [&](int64_t plane, const Place& place, int64_t at) {
                    CheckReads(ctx, place);
                    const T* values = from + plane * plane_size;
                    int64_t best = -1;
                    ForEachInput(w, place, [&](int64_t i) {
                      if (best < 0 || IsLarger(values[i], values[best])) {
                        best = i;
                      }
                    });
                    to[at] = values[best];
                    if (!indices) return;
                    indices[at] = plane * plane_size +
                                  (column_major ? ColumnMajor(w, best) : best);
                  });
  });
}

// y = pool(values of the plane, place) for each output position; `pool` is
// generic.
template <typename Pool>
void PoolBy(KernelContext& ctx, const Window& w, Pool pool) {
  const Tensor& x = ctx.In(0);
  Tensor& y = ctx.Out(0, x.dtype(), w.ShapeOf(x.dim(0), x.dim(1), w.out));
  int64_t plane_size = Window::Product(w.in);
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    ForEachOutput(w, x.dim(0) * x.dim(1),
                  [&](int64_t plane, const Place& place, int64_t at) {
                    to[at] = pool(from + plane * plane_size, place);
                  });
  });
}

void AveragePool(KernelContext& ctx) {
  Window w = PoolWindow(ctx);
  bool count_pads = ctx.Int("count_include_pad", 0) != 0;
  PoolBy(ctx, w, [&]<typename T>(const T* values, const Place& place) {
    if (!count_pads) CheckReads(ctx, place);
    T sum = 0;
    ForEachInput(w, place, [&](int64_t i) { sum += values[i]; });
    int64_t count = count_pads ? CountPadded(w, place) : CountInside(place);
    return sum / static_cast<T>(std::max<int64_t>(count, 1));
  });
}

// (Σ |x|^p)^(1/p)
void LpPool(KernelContext& ctx) {
  Window w = PoolWindow(ctx);
  auto p = static_cast<double>(ctx.Int("p", 2));
  Check(p >= 1, "[", ctx.Where(), "] expected p >= 1, got ", p);
  PoolBy(ctx, w, [&]<typename T>(const T* values, const Place& place) {
    double sum = 0;
    ForEachInput(w, place, [&](int64_t i) {
      sum += std::pow(std::fabs(double{values[i]}), p);
    });
    return static_cast<T>(std::pow(sum, 1 / p));
  });
}

// y (N,C,1…) = reduce(values of one plane, their number) for each plane.
template <typename Reduce>
void GlobalPool(KernelContext& ctx, Reduce reduce) {
  const Tensor& x = ctx.In(0);
  Check(x.rank() >= 3, "[", ctx.Where(),
        "] expected rank 3 or more, got shape ", ToString(x.shape()));
  Shape shape(x.shape().size(), 1);
  shape[0] = x.dim(0);
  shape[1] = x.dim(1);
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  int64_t plane_size = x.size() / y.size();
  Check(plane_size > 0, "[", ctx.Where(), "] expected elements, got shape ",
        ToString(x.shape()));
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    ParallelFor(y.size(), RowsPerTask(plane_size),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    to[i] = reduce(from + i * plane_size, plane_size);
                  }
                });
  });
}

void GlobalAveragePool(KernelContext& ctx) {
  GlobalPool(ctx, []<typename T>(const T* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return static_cast<T>(sum / static_cast<double>(n));
  });
}

// (Σ |x|^p)^(1/p)
void GlobalLpPool(KernelContext& ctx) {
  auto p = static_cast<double>(ctx.Int("p", 2));
  Check(p >= 1, "[", ctx.Where(), "] expected p >= 1, got ", p);
  GlobalPool(ctx, [p]<typename T>(const T* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::pow(std::fabs(double{x[i]}), p);
    return static_cast<T>(std::pow(sum, 1 / p));
  });
}

void GlobalMaxPool(KernelContext& ctx) {
  GlobalPool(ctx, []<typename T>(const T* x, int64_t n) {
    T best = x[0];
    for (int64_t i = 1; i < n; ++i) {
      if (IsLarger(x[i], best)) best = x[i];
    }
    return best;
  });
}

}  // namespace

void RegisterPool(KernelRegistry& r) {
  r.Add("MaxPool", MaxPool);
  r.Add("AveragePool", AveragePool);
  r.Add("LpPool", LpPool);
  r.Add("GlobalAveragePool", GlobalAveragePool);
  r.Add("GlobalLpPool", GlobalLpPool);
  r.Add("GlobalMaxPool", GlobalMaxPool);
}

}  // namespace onnx_fp8
