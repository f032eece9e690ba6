// SPDX-License-Identifier: Apache-2.0
//
// ArgMax, ArgMin and Hardmax by a warp for each slice; CumSum by a thread for
// each slice, in the CPU's order and in double, so that its results are the
// CPU's bit by bit. Traffic: the operand is read once, the result is written
// once. Slices whose elements lie side by side are read in sectors by CumSum;
// slices with other axes behind them are so by the Arg ops.
#include <type_traits>

#include "providers/cuda/core/best_of_warp.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kScanWarps = kThreads / 32;

// The slice of a warp, and the first of its elements in an order.
template <typename T>
struct ScanSlice {
  int64_t start, step;
  Placed<T> best;

  // REQUIRES: the warp has a slice, and slices are not empty.
  __device__ ScanSlice(const In<T>& x, const AxisView& v, int64_t slice,
                       const Order& order)
      : start(slice / v.inner * v.n * v.inner + slice % v.inner),
        step(v.inner) {
    Placed<T> own = {x.At(start), 0};
    int64_t lane = threadIdx.x % 32;
    for (int64_t i = lane; i < v.n; i += 32) {
      Placed<T> next = {x.At(start + i * step), i};
      if (i == lane || order.Before(next, own)) own = next;
    }
    if (lane >= v.n) own.place = -1;
    best = BestOfWarp(order, own);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ArgKernel(In<T> x, AxisView v, Order order, int64_t* y) {
  int64_t slice =
      static_cast<int64_t>(blockIdx.x) * kScanWarps + threadIdx.x / 32;
  if (slice >= v.outer * v.inner) return;
  ScanSlice<T> s(x, v, slice, order);
  if (threadIdx.x % 32 == 0) y[slice] = s.best.place;
}

// 1 at the first largest element, 0 elsewhere.
__global__ void __launch_bounds__(kThreads)
    HardmaxKernel(In<float> x, AxisView v, FloatsOut y) {
  int64_t slice =
      static_cast<int64_t>(blockIdx.x) * kScanWarps + threadIdx.x / 32;
  if (slice >= v.outer * v.inner) return;
  ScanSlice<float> s(x, v, slice, {true, false, false});
  for (int64_t i = threadIdx.x % 32; i < v.n; i += 32) {
    Store(y, s.start + i * s.step, i == s.best.place ? 1.0f : 0.0f);
  }
}

unsigned BlocksOfWarps(int64_t slices) {
  return static_cast<unsigned>(DivideUp(slices, kScanWarps));
}

template <bool kMax>
void ArgExtreme(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  AxisView v = ViewAlong(x.shape(), axis);
  Check(v.n > 0 || v.outer * v.inner == 0, "[", ctx.Where(),
        "] expected elements along axis ", axis, ", got shape ",
        ToString(x.shape()));
  Shape shape = x.shape();
  if (ctx.Int("keepdims", 1) != 0) {
    shape[static_cast<size_t>(axis)] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  Tensor& y = ctx.Out(0, DType::kInt64, shape);
  if (y.size() == 0) return;
  Order order = {kMax, ctx.Int("select_last_index", 0) != 0, true};
  ForNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    Launch(ArgKernel<T>, BlocksOfWarps(y.size()), kThreads, 0,
           QueueOf(ctx).stream(), InOf<T>(ctx, 0), v, order,
           static_cast<int64_t*>(y.raw()));
  });
}

void Hardmax(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis =
      AxisIn(ctx, ctx.Int("axis", -1), std::max<int64_t>(x.rank(), 1));
  AxisView v = x.rank() == 0 ? AxisView{1, 1, 1} : ViewAlong(x.shape(), axis);
  FloatsOut y = FloatsTo(ctx, 0, x.shape());
  if (x.size() == 0) return;
  Launch(HardmaxKernel, BlocksOfWarps(v.outer * v.inner), kThreads, 0,
         QueueOf(ctx).stream(), InOf<float>(ctx, 0), v, y);
}

// ---- CumSum, CumProd

template <typename T, bool kProduct>
__global__ void __launch_bounds__(kThreads)
    RunningKernel(In<T> x, AxisView v, bool exclusive, bool reverse, Out<T> y) {
  // Integers wrap around.
  using Acc = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  int64_t slice = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (slice >= v.outer * v.inner) return;
  int64_t base = slice / v.inner * v.n * v.inner + slice % v.inner;
  Acc acc = kProduct;
  AmaxPart unused;
  for (int64_t k = 0; k < v.n; ++k) {
    int64_t at = base + (reverse ? v.n - 1 - k : k) * v.inner;
    Acc value = static_cast<Acc>(x.At(at));
    Acc next = kProduct ? acc * value : acc + value;
    y.Put(at, static_cast<T>(exclusive ? acc : next), unused);
    acc = next;
  }
}

template <bool kProduct>
void Running(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &axes = Operand(ctx, 1);
  Check(axes.size() == 1 && IsInteger(axes.dtype()), "[", ctx.Where(),
        "] expected one integer axis, got ", Name(axes.dtype()), " ",
        ToString(axes.shape()));
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  AxisView v = ViewAlong(x.shape(), AxisIn(ctx, IntAt(axes, 0), x.rank()));
  bool exclusive = ctx.Int("exclusive", 0) != 0;
  bool reverse = ctx.Int("reverse", 0) != 0;
  ForNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    Out<T> y = OutTo<T>(ctx, 0, x.shape());
    if (x.size() == 0) return;
    Launch(RunningKernel<T, kProduct>, BlocksFor(v.outer * v.inner), kThreads,
           0, QueueOf(ctx).stream(), InOf<T>(ctx, 0), v, exclusive, reverse, y);
  });
}

}  // namespace

void RegisterScan(KernelRegistry& r) {
  r.Add("ArgMax", ArgExtreme<true>, {.narrow_in = {0}});
  r.Add("ArgMin", ArgExtreme<false>, {.narrow_in = {0}});
  r.Add("Hardmax", Hardmax, {.narrow_in = {0}});
  r.Add("CumProd", Running<true>, {.narrow_in = {0}});
  r.Add("CumSum", Running<false>, {.narrow_in = {0}});
}

}  // namespace onnx_fp8::cuda
