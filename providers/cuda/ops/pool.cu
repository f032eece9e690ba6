// SPDX-License-Identifier: Apache-2.0
//
// MaxPool, AveragePool, LpPool and the global pools; x (N,C,spatial…), in
// float. Traffic: y is written once, x is read once; what windows share comes
// from caches. Global pools read x once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/device_window.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

// ---- windows

// Smallest k >= 0 with start + k · step >= bound, at most `taps`.
template <typename T>
__host__ __device__ T FirstTapFrom(T bound, T start, T step, T taps) {
  if (start >= bound) return 0;
  T first = (bound - start + step - 1) / step;
  return first < taps ? first : taps;
}

// One output position and the input that it reads.
struct PoolPlace {
  int start[3];                  // input position of tap 0, may be outside
  int tap_begin[3], tap_end[3];  // taps that lie inside the input
};

__device__ PoolPlace PoolPlaceOf(const DeviceWindow& w, int64_t position) {
  PoolPlace p;
  PlaceIn(w.out, position, p.start);
  for (int a = 0; a < 3; ++a) {
    p.start[a] = p.start[a] * w.stride[a] - w.pad[a];
    p.tap_begin[a] = FirstTapFrom(0, p.start[a], w.dilation[a], w.kernel[a]);
    p.tap_end[a] =
        FirstTapFrom(w.in[a], p.start[a], w.dilation[a], w.kernel[a]);
  }
  return p;
}

// Taps inside the input.
__device__ int64_t CountInside(const PoolPlace& p) {
  int64_t count = 1;
  for (int a = 0; a < 3; ++a) {
    int taps = p.tap_end[a] - p.tap_begin[a];
    count *= taps > 0 ? taps : 0;
  }
  return count;
}

// Taps inside the input or its padding, without taps that ceil_mode adds.
__device__ int64_t CountPadded(const DeviceWindow& w, const PoolPlace& p) {
  int64_t count = 1;
  for (int a = 0; a < 3; ++a) {
    count *= FirstTapFrom(w.in[a] + w.pad_end[a], p.start[a], w.dilation[a],
                          w.kernel[a]);
  }
  return count;
}

// reduce(x, offset in the plane) for every tap inside the input, in row-major
// order; x is the plane.
template <typename Reduce>
__device__ void ForTaps(const DeviceWindow& w, const PoolPlace& p,
                        const float* x, Reduce& reduce) {
  for (int kd = p.tap_begin[0]; kd < p.tap_end[0]; ++kd) {
    int64_t d = p.start[0] + kd * w.dilation[0];
    for (int kh = p.tap_begin[1]; kh < p.tap_end[1]; ++kh) {
      int64_t h = p.start[1] + kh * w.dilation[1];
      int64_t line = (d * w.in[1] + h) * w.in[2] + p.start[2];
      for (int kw = p.tap_begin[2]; kw < p.tap_end[2]; ++kw) {
        int64_t at = line + static_cast<int64_t>(kw) * w.dilation[2];
        reduce(x[at], at);
      }
    }
  }
}

struct PoolOperands {
  const float* x;
  float* y;          // null: nobody reads it
  int64_t* indices;  // null: nobody reads them
  int64_t size;      // elements of y
  DeviceWindow w;
};

// ---- reductions

// NaN is larger than everything, as in PyTorch.
__device__ bool IsLarger(float a, float b) {
  if (b != b) return false;
  return a != a || a > b;
}

struct Largest {
  float value = 0;
  int64_t at = -1;
  __device__ void operator()(float x, int64_t i) {
    if (at < 0 || IsLarger(x, value)) {
      value = x;
      at = i;
    }
  }
};

struct Sum {
  float value = 0;
  __device__ void operator()(float x, int64_t) { value += x; }
};

struct SumOfPowers {
  int p;
  double value = 0;
  __device__ void operator()(float x, int64_t) {
    auto a = fabs(static_cast<double>(x));
    value += p == 1 ? a : p == 2 ? a * a : pow(a, static_cast<double>(p));
  }
};

struct MaxOf {
  bool column_major;  // indices count the first axis fastest

  __device__ void operator()(const PoolOperands& o, const PoolPlace& p,
                             int64_t plane, int64_t to) const {
    const DeviceWindow& w = o.w;
    Largest best;
    ForTaps(w, p, o.x + plane * w.in_plane, best);
    if (o.y) o.y[to] = best.value;
    if (!o.indices) return;
    int64_t at = best.at;
    if (column_major) {
      int place[3];
      PlaceIn(w.in, at, place);
      int64_t columns = place[1] + static_cast<int64_t>(w.in[1]) * place[2];
      at = place[0] + w.in[0] * columns;
    }
    o.indices[to] = plane * w.in_plane + at;
  }
};

struct MeanOf {
  bool count_pads;

  __device__ void operator()(const PoolOperands& o, const PoolPlace& p,
                             int64_t plane, int64_t to) const {
    Sum sum;
    ForTaps(o.w, p, o.x + plane * o.w.in_plane, sum);
    int64_t count = count_pads ? CountPadded(o.w, p) : CountInside(p);
    o.y[to] = sum.value / static_cast<float>(count > 1 ? count : 1);
  }
};

// (Σ |x|^p)^(1/p)
struct NormOf {
  int p;

  __device__ void operator()(const PoolOperands& o, const PoolPlace& place,
                             int64_t plane, int64_t to) const {
    SumOfPowers sum = {p};
    ForTaps(o.w, place, o.x + plane * o.w.in_plane, sum);
    double norm = p == 1   ? sum.value
                  : p == 2 ? sqrt(sum.value)
                           : pow(sum.value, 1.0 / p);
    o.y[to] = static_cast<float>(norm);
  }
};

// A thread for each element of y.
template <typename F>
__global__ void __launch_bounds__(kThreads) PoolKernel(PoolOperands o, F f) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= o.size) return;
  int64_t plane = i / o.w.out_plane;
  f(o, PoolPlaceOf(o.w, i % o.w.out_plane), plane, i);
}

// ---- the ops with windows

void CheckFloat(const KernelContext& ctx) {
  DType dtype = Operand(ctx, 0).dtype();
  Check(dtype == DType::kFloat, "[", ctx.Where(), "] expected float, got ",
        Name(dtype));
}

// Whether all positions along an axis have a tap inside the input.
bool ReadsInput(const Window& w, size_t axis) {
  for (int64_t o = 0; o < w.out[axis]; ++o) {
    int64_t start = o * w.stride[axis] - w.pad[axis];
    int64_t step = w.dilation[axis], taps = w.kernel[axis];
    if (FirstTapFrom(int64_t{0}, start, step, taps) >=
        FirstTapFrom(w.in[axis], start, step, taps)) {
      return false;
    }
  }
  return true;
}

// Errors: a window reads only padding, so it has no maximum and no mean.
void CheckReads(const KernelContext& ctx, const Window& w) {
  for (size_t axis = 0; axis < 3; ++axis) {
    Check(ReadsInput(w, axis), "[", ctx.Where(),
          "] expected pads that leave input in every window, got a window "
          "without");
  }
}

Window PoolWindow(const KernelContext& ctx) {
  CheckFloat(ctx);
  Check(ctx.Has("kernel_shape"), "[", ctx.Where(),
        "] expected kernel_shape, got none");
  return WindowOver(ctx, ctx.In(0).shape(), ctx.Ints("kernel_shape"));
}

template <typename F>
void PoolBy(KernelContext& ctx, const Window& w, bool reads_input, F f) {
  const Tensor& x = ctx.In(0);
  Shape shape = w.ShapeOf(x.dim(0), x.dim(1), w.out);
  PoolOperands o = {.x = static_cast<const float*>(x.raw()),
                    .y = nullptr,
                    .indices = nullptr,
                    .size = NumElements(shape),
                    .w = OnDevice(ctx, w)};
  if (ctx.HasOut(0)) {
    o.y = static_cast<float*>(ctx.Out(0, DType::kFloat, shape).raw());
  }
  if (ctx.HasOut(1)) {
    Tensor& indices = ctx.Out(1, DType::kInt64, shape);
    o.indices = static_cast<int64_t*>(indices.raw());
  }
  if (o.size == 0 || (!o.y && !o.indices)) return;
  if (reads_input) CheckReads(ctx, w);
  Launch(PoolKernel<F>, static_cast<unsigned>(DivideUp(o.size, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), o, f);
}

void MaxPool(KernelContext& ctx) {
  Window w = PoolWindow(ctx);
  PoolBy(ctx, w, true, MaxOf{ctx.Int("storage_order", 0) != 0});
}

void AveragePool(KernelContext& ctx) {
  Window w = PoolWindow(ctx);
  bool count_pads = ctx.Int("count_include_pad", 0) != 0;
  PoolBy(ctx, w, !count_pads, MeanOf{count_pads});
}

void LpPool(KernelContext& ctx) {
  Window w = PoolWindow(ctx);
  int64_t p = ctx.Int("p", 2);
  Check(p >= 1 && p < (int64_t{1} << 31), "[", ctx.Where(),
        "] expected p >= 1, got ", p);
  PoolBy(ctx, w, false, NormOf{static_cast<int>(p)});
}

// ---- global pools: a warp for each plane, or a block for a large one

constexpr int kPoolWarps = kThreads / 32;
constexpr int64_t kLargePlane = 2048;

struct MeanOfPlane {
  __device__ float None() const { return 0; }
  __device__ float Join(float a, float b) const { return a + b; }
  __device__ float Finish(float x, int64_t n) const {
    return x / static_cast<float>(n);
  }
};

struct MaxOfPlane {
  __device__ float None() const { return kLowest; }
  __device__ float Join(float a, float b) const {
    return IsLarger(b, a) ? b : a;
  }
  __device__ float Finish(float x, int64_t) const { return x; }
};

template <typename F>
__device__ float JoinWarp(F f, float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    x = f.Join(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
  }
  return x;
}

template <typename F, bool kWholeBlock>
__global__ void __launch_bounds__(kThreads)
    GlobalPoolKernel(const float* x, float* y, int64_t planes, int64_t n, F f) {
  __shared__ float parts[kPoolWarps];
  constexpr int kLanes = kWholeBlock ? kThreads : 32;
  int lane = static_cast<int>(threadIdx.x) % kLanes;
  int64_t plane = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) +
                  static_cast<int>(threadIdx.x) / kLanes;
  if (plane >= planes) return;  // the whole warp does
  const float* from = x + plane * n;
  float all = f.None();
  for (int64_t i = lane; i < n; i += kLanes) all = f.Join(all, from[i]);
  all = JoinWarp(f, all);
  if (kWholeBlock) {
    if (lane % 32 == 0) parts[lane / 32] = all;
    __syncthreads();
    all = f.None();
    if (lane < kPoolWarps) all = parts[lane];
    all = JoinWarp(f, all);
  }
  if (lane == 0) y[plane] = f.Finish(all, n);
}

template <typename F>
void GlobalPool(KernelContext& ctx, F f) {
  CheckFloat(ctx);
  const Tensor& x = ctx.In(0);
  Check(x.rank() >= 3, "[", ctx.Where(),
        "] expected rank 3 or more, got shape ", ToString(x.shape()));
  Shape shape(x.shape().size(), 1);
  shape[0] = x.dim(0);
  shape[1] = x.dim(1);
  Tensor& y = ctx.Out(0, DType::kFloat, shape);
  if (y.size() == 0) return;
  int64_t n = x.size() / y.size();
  Check(n > 0, "[", ctx.Where(), "] expected elements, got shape ",
        ToString(x.shape()));
  bool whole = n >= kLargePlane;
  int64_t blocks = whole ? y.size() : DivideUp(y.size(), kPoolWarps);
  Launch(whole ? GlobalPoolKernel<F, true> : GlobalPoolKernel<F, false>,
         static_cast<unsigned>(blocks), kThreads, 0, QueueOf(ctx).stream(),
         static_cast<const float*>(x.raw()), static_cast<float*>(y.raw()),
         y.size(), n, f);
}

void GlobalAveragePool(KernelContext& ctx) { GlobalPool(ctx, MeanOfPlane()); }
void GlobalMaxPool(KernelContext& ctx) { GlobalPool(ctx, MaxOfPlane()); }

}  // namespace

void RegisterPool(KernelRegistry& r) {
  r.Add("MaxPool", MaxPool);
  r.Add("AveragePool", AveragePool);
  r.Add("LpPool", LpPool);
  r.Add("GlobalAveragePool", GlobalAveragePool);
  r.Add("GlobalMaxPool", GlobalMaxPool);
}

}  // namespace onnx_fp8::cuda
