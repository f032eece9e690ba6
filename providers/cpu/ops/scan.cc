// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kScanColumns = 256;  // columns side by side

// Calls fn(outer, column, columns) for blocks of columns of an (outer, n,
// inner) tensor, on all threads.
template <typename Fn>
void ForColumns(const AxisView& v, Fn fn) {
  int64_t blocks = DivideUp(v.inner, kScanColumns);
  ParallelFor(
      v.outer * blocks, RowsPerTask(v.n * std::min(v.inner, kScanColumns)),
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          int64_t column = at % blocks * kScanColumns;
          fn(at / blocks, column, std::min(kScanColumns, v.inner - column));
        }
      });
}

// True if v comes before `best`: NaN before all numbers, then the larger number
// (kMax) or the smaller; of equal ones the later one if `last`.
template <bool kMax, typename T>
bool Wins(T v, T best, bool last) {
  if (v != v || best != best) return v != v && (last || best == best);
  return (kMax ? v > best : v < best) || (last && v == best);
}

template <bool kMax>
void ArgExtreme(KernelContext& ctx) {
  Tensor x = WideInteger(Operand(ctx, 0));
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  bool last = ctx.Int("select_last_index", 0) != 0;
  AxisView v = ViewAlong(x.shape(), axis);
  Check(v.n > 0 || v.outer * v.inner == 0, "[", ctx.Where(),
        "] expected elements along axis ", axis, ", got shape ",
        ToString(x.shape()));
  Shape shape = x.shape();
  auto at = shape.begin() + axis;
  if (ctx.Int("keepdims", 1) != 0) {
    *at = 1;
  } else {
    shape.erase(at);
  }
  Tensor y = Result(ctx, 0, DType::kInt64, shape);
  DispatchWide(x.dtype(), ctx.Where(), [&]<typename T>() {
    ForColumns(v, [&](int64_t outer, int64_t column, int64_t columns) {
      const T* in = x.data<T>() + outer * v.n * v.inner + column;
      int64_t* out = y.data<int64_t>() + outer * v.inner + column;
      T best[kScanColumns];
      for (int64_t j = 0; j < columns; ++j) {
        best[j] = in[j];
        out[j] = 0;
      }
      for (int64_t k = 1; k < v.n; ++k) {
        for (int64_t j = 0; j < columns; ++j) {
          T value = in[k * v.inner + j];
          if (!Wins<kMax>(value, best[j], last)) continue;
          best[j] = value;
          out[j] = k;
        }
      }
    });
  });
}

struct RunningSum {
  static constexpr int kFirst = 0;
  static auto Next(auto acc, auto x) { return acc + x; }
};
struct RunningProduct {
  static constexpr int kFirst = 1;
  static auto Next(auto acc, auto x) { return acc * x; }
};

template <typename Op>
void Running(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const Tensor& axes = Operand(ctx, 1);
  Check(axes.size() == 1 && IsInteger(axes.dtype()), "[", ctx.Where(),
        "] expected one integer axis, got ", Name(axes.dtype()), " ",
        ToString(axes.shape()));
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  int64_t axis = AxisIn(ctx, IntAt(axes, 0), x.rank());
  bool exclusive = ctx.Int("exclusive", 0) != 0;
  bool reverse = ctx.Int("reverse", 0) != 0;
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  AxisView v = ViewAlong(x.shape(), axis);
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    // Integers wrap around.
    using Acc =
        std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    ForColumns(v, [&](int64_t outer, int64_t column, int64_t columns) {
      int64_t base = outer * v.n * v.inner + column;
      Acc acc[kScanColumns];
      std::fill_n(acc, columns, Acc{Op::kFirst});
      for (int64_t k = 0; k < v.n; ++k) {
        int64_t row = base + (reverse ? v.n - 1 - k : k) * v.inner;
        const T* in = x.data<T>() + row;
        T* out = y.data<T>() + row;
        for (int64_t j = 0; j < columns; ++j) {
          Acc next = Op::Next(acc[j], static_cast<Acc>(in[j]));
          out[j] = static_cast<T>(exclusive ? acc[j] : next);
          acc[j] = next;
        }
      }
    });
  });
}

}  // namespace

void RegisterScan(KernelRegistry& r) {
  r.Add("ArgMax", Widened<ArgExtreme<true>>);
  r.Add("ArgMin", Widened<ArgExtreme<false>>);
  r.Add("CumProd", Widened<Running<RunningProduct>>);
  r.Add("CumSum", Widened<Running<RunningSum>>);
}

}  // namespace onnx_fp8
