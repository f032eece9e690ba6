// SPDX-License-Identifier: Apache-2.0
//
// Softmax and related ops along one axis of x, seen as (outer, n, inner).
#include <algorithm>
#include <limits>
#include <vector>

#include "graph/graph.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// Slices of the axis that lie beside each other, or one slice without gaps.
template <typename T, size_t kOperands>
class Slices {
 public:
  Slices(const AxisView& v, const StoredIn<T> (&in)[kOperands],
         const StoredOut<T>& out)
      : v_(v), in_(in), out_(out) {}

  // The number of slices in a group.
  static int64_t Width(const AxisView& v) { return v.inner == 1 ? 1 : kBeside; }

  // Runs fn on `count` slices from slice `first` on, all of one outer index.
  template <typename Fn>
  void Run(int64_t first, int64_t count, Fn fn) {
    T* room = WideRows<T>(kOperands + 1, count * v_.n);
    const T* slices[kOperands];
    int64_t at = first / v_.inner * v_.n * v_.inner + first % v_.inner;
    if (v_.inner == 1) {
      for (size_t k = 0; k < kOperands; ++k, room += v_.n) {
        slices[k] = in_[k].Read(at, v_.n, room);
      }
      T* y = out_.At(at, room);
      fn(slices, y);
      return out_.Write(at, v_.n, y);
    }
    const T* copies = room;
    for (size_t k = 0; k < kOperands; ++k, room += count * v_.n) {
      ReadBeside(in_[k], at, count, room);
    }
    for (int64_t j = 0; j < count; ++j) {
      for (size_t k = 0; k < kOperands; ++k) {
        slices[k] = copies + (static_cast<int64_t>(k) * count + j) * v_.n;
      }
      fn(slices, room + j * v_.n);
    }
    WriteBeside(at, count, room);
  }

 private:
  static constexpr int64_t kBeside = 16;

  void ReadBeside(const StoredIn<T>& in, int64_t at, int64_t count, T* to) {
    T wide[kBeside];
    for (int64_t i = 0; i < v_.n; ++i) {
      const T* row = in.Read(at + i * v_.inner, count, wide);
      for (int64_t j = 0; j < count; ++j) to[j * v_.n + i] = row[j];
    }
  }

  void WriteBeside(int64_t at, int64_t count, const T* from) {
    T wide[kBeside];
    for (int64_t i = 0; i < v_.n; ++i, at += v_.inner) {
      T* row = out_.At(at, wide);
      for (int64_t j = 0; j < count; ++j) row[j] = from[j * v_.n + i];
      out_.Write(at, count, row);
    }
  }

  const AxisView& v_;
  const StoredIn<T> (&in_)[kOperands];
  const StoredOut<T>& out_;
};

// Calls fn(const T* const* in, T* out) for every slice along the axis, on all
// threads. It has kOperands operands and a result, all of one shape. Slices
// that are not contiguous are copied in and out.
template <typename T, size_t kOperands, typename Fn>
void ForSlices(const AxisView& v, const StoredIn<T> (&in)[kOperands], Tensor& y,
               Fn fn) {
  if (v.n == 0 || v.inner == 0) return;
  StoredOut<T> out(y);
  int64_t width = Slices<T, kOperands>::Width(v);
  int64_t groups = DivideUp(v.inner, width);
  ParallelFor(v.outer * groups, RowsPerTask(v.n * width),
              [&](int64_t begin, int64_t end) {
                Slices<T, kOperands> slices(v, in, out);
                for (int64_t at = begin; at < end; ++at) {
                  int64_t column = at % groups * width;
                  slices.Run(at / groups * v.inner + column,
                             std::min(width, v.inner - column), fn);
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
    dtype = ComputedAs(x);
    y = StoredResult(ctx, 0, dtype, x.shape());
  }
  const Tensor& x;
  AxisView v;
  DType dtype;
  Tensor y;
};

void Softmax(KernelContext& ctx) {
  AlongAxis a(ctx);
  int64_t n = a.v.n;
  DispatchFloat(a.dtype, ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(
        a.v, {StoredIn<T>(a.x)}, a.y, [=](const T* const* in, T* out) {
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
  DispatchFloat(a.dtype, ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(
        a.v, {StoredIn<T>(a.x)}, a.y, [=](const T* const* in, T* out) {
          const T* x = in[0];
          T largest = VectorMax(x, n);
          double sum =
              VectorExpShifted(x, largest, static_cast<T*>(nullptr), n);
          auto log_sum = static_cast<T>(std::log(sum));
          OnBestIsa([=] {
            ONNX_FP8_IVDEP  // out is x or does not overlap it
            for (int64_t i = 0; i < n; ++i) out[i] = x[i] - largest - log_sum;
          });
        });
  });
}

// 1 at the first largest element, 0 elsewhere.
void Hardmax(KernelContext& ctx) {
  AlongAxis a(ctx);
  int64_t n = a.v.n;
  DispatchFloat(a.dtype, ctx.Where(), [&]<typename T>() {
    ForSlices<T, 1>(a.v, {StoredIn<T>(a.x)}, a.y,
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
  CheckOperand(ctx, 0, a.dtype, a.x.shape());
  int64_t n = a.v.n;
  DispatchFloat(a.dtype, ctx.Where(), [&]<typename T>() {
    ForSlices<T, 2>(
        a.v, {StoredIn<T>(dy), StoredIn<T>(a.x)}, a.y,
        [=](const T* const* in, T* out) {
          const T* g = in[0];
          const T* y = in[1];
          auto sum = static_cast<T>(VectorDot(g, y, n));
          OnBestIsa([=] {
            ONNX_FP8_IVDEP  // out is g or y or does not overlap them
            for (int64_t i = 0; i < n; ++i) out[i] = y[i] * (g[i] - sum);
          });
        });
  });
}

}  // namespace

void RegisterSoftmax(KernelRegistry& r) {
  const KernelTraits one{
      .in_place = {{0, 0}}, .narrow_in = {0}, .narrow_out = {0}};
  const KernelTraits two{
      .in_place = {{0, 0}, {1, 0}}, .narrow_in = {0, 1}, .narrow_out = {0}};
  r.Add("Softmax", Widened<Softmax>, one);
  r.Add("LogSoftmax", Widened<LogSoftmax>, one);
  r.Add("Hardmax", Widened<Hardmax>);
  r.Add("SoftmaxGrad", Widened<SoftmaxGrad>, two, kDomain);
}

}  // namespace onnx_fp8
