// SPDX-License-Identifier: Apache-2.0
//
// Softmax and related ops along one axis of x, seen as (outer, n, inner).
#include <algorithm>
#include <limits>
#include <vector>

#include "graph/graph.h"
#include "providers/arguments.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/cpu/register.h"
#include "providers/cpu/tasks.h"

namespace onnx_fp8 {
namespace {

// Calls fn(const T* const* in, T* out) for every slice along the axis, on all
// threads. It has kOperands operands and a result, all of one shape. Slices
// that are not contiguous are copied in and out.
template <typename T, size_t kOperands, typename Fn>
void ForSlices(const AxisView& v, const T* const (&in)[kOperands], T* out,
               Fn fn) {
  if (v.n == 0) return;
  ParallelFor(v.outer * v.inner, RowsPerTask(v.n),
              [&](int64_t begin, int64_t end) {
                std::vector<T> copies;
                if (v.inner > 1)
                  copies.resize((kOperands + 1) * static_cast<size_t>(v.n));
                for (int64_t at = begin; at < end; ++at) {
                  int64_t from = at / v.inner * v.n * v.inner + at % v.inner;
                  const T* slices[kOperands];
                  for (size_t k = 0; k < kOperands; ++k)
                    slices[k] = in[k] + from;
                  if (v.inner == 1) {
                    fn(slices, out + from);
                    continue;
                  }
                  T* copy = copies.data();
                  for (size_t k = 0; k < kOperands; ++k, copy += v.n) {
                    for (int64_t i = 0; i < v.n; ++i)
                      copy[i] = slices[k][i * v.inner];
                    slices[k] = copy;
                  }
                  fn(slices, copy);
                  for (int64_t i = 0; i < v.n; ++i)
                    out[from + i * v.inner] = copy[i];
                }
              });
}

// The operand, its view along the axis, and the result.
struct AlongAxis {
  explicit AlongAxis(KernelContext& ctx, size_t operand = 0)
      : x(Operand(ctx, operand)) {
    // A scalar is a vector of one element.
    int64_t axis =
        AxisIn(ctx, ctx.Int("axis", -1), std::max<int64_t>(x.rank(), 1));
    v = x.rank() == 0 ? AxisView{1, 1, 1} : ViewAlong(x.shape(), axis);
    y = Result(ctx, 0, x.dtype(), x.shape());
  }
  const Tensor& x;
  AxisView v;
  Tensor y;
};

void Softmax(KernelContext& ctx) {
  AlongAxis a(ctx);
  int64_t n = a.v.n;
  DispatchFloat(a.x.dtype(), ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(
        a.v, {a.x.data<T>()}, a.y.data<T>(), [=](const T* const* in, T* out) {
          double sum = VectorExpShifted(in[0], VectorMax(in[0], n), out, n);
          auto scale = static_cast<T>(1.0 / sum);
          OnBestIsa([=] {
            for (int64_t i = 0; i < n; ++i) out[i] *= scale;
          });
        });
  });
}

void LogSoftmax(KernelContext& ctx) {
  AlongAxis a(ctx);
  int64_t n = a.v.n;
  DispatchFloat(a.x.dtype(), ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(
        a.v, {a.x.data<T>()}, a.y.data<T>(), [=](const T* const* in, T* out) {
          const T* x = in[0];
          T largest = VectorMax(x, n);
          double sum =
              VectorExpShifted(x, largest, static_cast<T*>(nullptr), n);
          auto log_sum = static_cast<T>(std::log(sum));
          OnBestIsa([=] {
#pragma GCC ivdep  // out is x or does not overlap it
            for (int64_t i = 0; i < n; ++i) out[i] = x[i] - largest - log_sum;
          });
        });
  });
}

// 1 at the first largest element, 0 elsewhere.
void Hardmax(KernelContext& ctx) {
  AlongAxis a(ctx);
  int64_t n = a.v.n;
  DispatchFloat(a.x.dtype(), ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(a.v, {a.x.data<T>()}, a.y.data<T>(),
                    [=](const T* const* in, T* out) {
                      int64_t at = std::max_element(in[0], in[0] + n) - in[0];
                      std::fill_n(out, n, T{0});
                      out[at] = 1;
                    });
  });
}

// dx = y (dy - sum(dy y))
void SoftmaxGrad(KernelContext& ctx) {
  AlongAxis a(ctx, 1);
  const Tensor& dy = Operand(ctx, 0);
  CheckOperand(ctx, 0, a.x.dtype(), a.x.shape());
  int64_t n = a.v.n;
  DispatchFloat(a.x.dtype(), ctx.Where(), [&]<typename T>() {
    ForSlices<T, 2>(a.v, {dy.data<T>(), a.x.data<T>()}, a.y.data<T>(),
                    [=](const T* const* in, T* out) {
                      const T* g = in[0];
                      const T* y = in[1];
                      auto sum = static_cast<T>(VectorDot(g, y, n));
                      OnBestIsa([=] {
#pragma GCC ivdep  // out is g or y or does not overlap them
                        for (int64_t i = 0; i < n; ++i)
                          out[i] = y[i] * (g[i] - sum);
                      });
                    });
  });
}

}  // namespace

void RegisterSoftmax(KernelRegistry& r) {
  r.Add("Softmax", Widened<Softmax>, {.in_place = {{0, 0}}});
  r.Add("LogSoftmax", Widened<LogSoftmax>, {.in_place = {{0, 0}}});
  r.Add("Hardmax", Widened<Hardmax>);
  r.Add("SoftmaxGrad", Widened<SoftmaxGrad>, {.in_place = {{0, 0}, {1, 0}}},
        kDomain);
}

}  // namespace onnx_fp8
