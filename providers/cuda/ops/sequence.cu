// SPDX-License-Identifier: Apache-2.0
//
// Ops that deal with positions. OneHot and Trilu write each element of the
// result once, and read each operand once or, where Trilu leaves 0, not at all.
// TopK looks for one element after the other, by a warp for each slice: it
// reads the operand k times, mostly from a cache. NonZero, Compress and Unique
// have results whose sizes depend on data, so they stay on the CPU.
#include <algorithm>

#include "providers/cuda/core/best_of_warp.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/kernel.h"
#include "providers/ops/for_width.h"
#include "providers/ops/positions.h"

namespace onnx_fp8::cuda {
namespace {

// ---- OneHot

// indices (outer, inner), values [off, on] → y (outer, depth, inner)
template <typename I, typename T>
__global__ void __launch_bounds__(kThreads)
    OneHotKernel(In<I> indices, int64_t depth, int64_t inner, int64_t n,
                 const T* values, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n) return;
  int64_t outer = at / inner / depth, row = at / inner % depth;
  auto place = static_cast<int64_t>(indices.At(outer * inner + at % inner));
  if (place < 0) place += depth;
  y[at] = values[place == row ? 1 : 0];
}

void OneHot(KernelContext& ctx) {
  const Tensor &indices = Operand(ctx, 0), &values = Operand(ctx, 2);
  const auto [depth, inner, shape] = OneHotSizesOf(ctx);
  Tensor& y = ctx.Out(0, values.dtype(), shape);
  if (y.size() == 0) return;
  ForNumeric(indices.dtype(), ctx.Where(), [&]<typename I>() {
    ForWidth(ByteSize(values.dtype()), [&]<typename T>() {
      Launch(OneHotKernel<I, T>, BlocksFor(y.size()), kThreads, 0,
             QueueOf(ctx).stream(), InOf<I>(ctx, 0), depth, inner, y.size(),
             static_cast<const T*>(values.raw()), static_cast<T*>(y.raw()));
    });
  });
}

// ---- Trilu

// Keeps columns from row + k on (upper), or up to row + k.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TriluKernel(const T* x, int64_t n, int64_t rows, int64_t columns, int64_t k,
                bool upper, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n) return;
  int64_t column = at % columns, diagonal = at / columns % rows + k;
  y[at] = (upper ? column >= diagonal : column <= diagonal) ? x[at] : T{0};
}

void Trilu(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t k = DiagonalOf(ctx), rows = x.dim(-2), columns = x.dim(-1);
  bool upper = ctx.Int("upper", 1) != 0;
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  if (y.size() == 0) return;
  ForWidth(ByteSize(x.dtype()), [&]<typename T>() {
    Launch(TriluKernel<T>, BlocksFor(y.size()), kThreads, 0,
           QueueOf(ctx).stream(), static_cast<const T*>(x.raw()), y.size(),
           rows, columns, k, upper, static_cast<T*>(y.raw()));
  });
}

// ---- TopK

constexpr int kSequenceWarps = kThreads / 32;

// x (outer, n, inner) → values, places (outer, k, inner)
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TopKKernel(In<T> x, AxisView v, int64_t k, Order order, Out<T> values,
               bool wanted, int64_t* places) {
  int64_t slice =
      static_cast<int64_t>(blockIdx.x) * kSequenceWarps + threadIdx.x / 32;
  if (slice >= v.outer * v.inner) return;
  int64_t outer = slice / v.inner, column = slice % v.inner;
  AmaxPart unused;
  Placed<T> found = {T{}, -1};  // the last one
  for (int64_t t = 0; t < k; ++t) {
    Placed<T> own = {T{}, -1};
    for (int64_t i = threadIdx.x % 32; i < v.n; i += 32) {
      Placed<T> next = {x.At((outer * v.n + i) * v.inner + column), i};
      bool is_left = found.place < 0 || order.Before(found, next);
      if (is_left && order.Before(next, own)) own = next;
    }
    found = BestOfWarp(order, own);
    if (threadIdx.x % 32 != 0) continue;
    int64_t to = (outer * k + t) * v.inner + column;
    if (wanted) values.Put(to, found.value, unused);
    if (places) places[to] = found.place;
  }
}

void TopK(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const auto [k, v, shape] = TopKSizesOf(ctx);
  int64_t* places = nullptr;
  if (ctx.HasOut(1)) {
    places = static_cast<int64_t*>(ctx.Out(1, DType::kInt64, shape).raw());
  }
  Order order = {ctx.Int("largest", 1) != 0, false, false};
  ForNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    Out<T> values = {};
    if (ctx.HasOut(0)) values = OutTo<T>(ctx, 0, shape);
    if (NumElements(shape) == 0) return;
    Launch(TopKKernel<T>,
           static_cast<unsigned>(DivideUp(v.outer * v.inner, kSequenceWarps)),
           kThreads, 0, QueueOf(ctx).stream(), InOf<T>(ctx, 0), v, k, order,
           values, ctx.HasOut(0), places);
  });
}

}  // namespace

void RegisterSequence(KernelRegistry& r) {
  r.Add("OneHot", OneHot);
  r.Add("Trilu", Trilu, {.moves = true});
  r.Add("TopK", TopK);
}

}  // namespace onnx_fp8::cuda
