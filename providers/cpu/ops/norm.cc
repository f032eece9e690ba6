// SPDX-License-Identifier: Apache-2.0
//
// Normalization over the last axes: x is seen as rows, (rows, n). Statistics
// are computed and applied in double.
#include "providers/cpu/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/ops/row_sums.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// x as rows of the normalized axes.
struct Rows {
  Rows(const KernelContext& ctx, const Tensor& x) {
    axis = AxisIn(ctx, ctx.Int("axis", -1), x.rank());
    Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
    AxisView v = ViewAlong(x.shape(), axis, x.rank() - axis);
    count = v.outer;
    n = v.n;
    tail = Shape(x.shape().begin() + axis, x.shape().end());
    statistics = x.shape();
    std::fill(statistics.begin() + axis, statistics.end(), 1);
  }

  int64_t axis, count, n;
  Shape tail;        // of one row
  Shape statistics;  // of one number per row
};

// A scale or bias with one value per element of a row or of x.
template <typename T>
struct PerElement {
  Tensor values;     // keeps `data` alive
  const T* data;     // null: omitted
  int64_t step = 0;  // from row to row

  const T* Row(int64_t row) const { return data ? data + row * step : nullptr; }
};

// Operand i, which broadcasts to x (usually to a row of x).
template <typename T>
PerElement<T> ToElements(const KernelContext& ctx, size_t i, const Tensor& x,
                         const Rows& rows) {
  if (!ctx.HasIn(i)) return {Tensor(), nullptr, 0};
  const Tensor& t = ctx.In(i);
  Check(t.dtype() == DTypeOf<T>(), "[", ctx.Where(), "] expected input ", i,
        " of dtype ", Name(DTypeOf<T>()), ", got ", Name(t.dtype()));
  Check(BroadcastShapes(t.shape(), x.shape(), ctx.Where()) == x.shape(), "[",
        ctx.Where(), "] expected input ", i, " to broadcast to ",
        ToString(x.shape()), ", got ", ToString(t.shape()));
  // If axes in front of a row's axes vary, it has one value per element of x.
  int64_t lead = t.rank() - static_cast<int64_t>(rows.tail.size());
  bool per_row = false;
  for (int64_t a = 0; a < lead; ++a) per_row = per_row || t.dim(a) != 1;
  const Shape& shape = per_row ? x.shape() : rows.tail;
  Shape own = t.shape();
  if (!per_row && lead > 0) own.erase(own.begin(), own.begin() + lead);
  int64_t step = per_row ? rows.n : 0;
  if (own == shape) return {t, t.data<T>(), step};
  Tensor full = Tensor::Allocate(t.dtype(), shape);
  CopyStrided(shape, sizeof(T), t.raw(), BroadcastStrides(own, shape.size()),
              full.raw(), Strides(shape));
  return {full, full.data<T>(), step};
}

// y = (x - mean) inv_std scale + bias for one row.
template <typename T>
void WriteRow(const T* x, double mean, double inv_std, const T* scale,
              const T* bias, T* y, int64_t n) {
  OnBestIsa([=] {
    if (bias) {
      ONNX_FP8_IVDEP  // y is x or does not overlap it
      for (int64_t i = 0; i < n; ++i) {
        y[i] = static_cast<T>((x[i] - mean) * inv_std * scale[i] + bias[i]);
      }
    } else {
      ONNX_FP8_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        y[i] = static_cast<T>((x[i] - mean) * inv_std * scale[i]);
      }
    }
  });
}

// Output i of LayerNormalization: one number per row, in the dtype that the
// plan knows or stash_type names.
void WriteStatistics(KernelContext& ctx, size_t i, const Rows& rows,
                     const std::vector<double>& values) {
  if (!ctx.HasOut(i)) return;
  DType dtype = ctx.node().out(i)->dtype;
  if (dtype == DType::kUndefined) {
    dtype = static_cast<DType>(ctx.Int("stash_type", 1));
  }
  Check(IsFloat(dtype), "[", ctx.Where(),
        "] expected a float dtype in stash_type, got ", Name(dtype));
  Tensor exact = Tensor::From<double>(rows.statistics, values);
  SetResult(ctx, i, ConvertTo(exact, dtype));
}

// The normalized values: operand 0 or, with kAdd, output 0, the sum of the
// first two operands. Rows of the sum are computed when they are asked for.
template <bool kAdd>
struct Source {
  explicit Source(KernelContext& ctx)
      : a(Operand(ctx, 0)),
        b(Operand(ctx, kAdd ? 1 : 0)),
        dtype(ComputedAs(a)),
        x(kAdd ? StoredResult(ctx, 0, dtype, a.shape()) : a) {
    if (kAdd) CheckOperand(ctx, 1, dtype, a.shape());
  }

  // `wide`: room for three rows.
  template <typename T>
  const T* Row(int64_t r, int64_t n, T* wide) {
    const T* p = StoredIn<T>(a).Read(r * n, n, wide);
    if constexpr (!kAdd) return p;
    const T* q = StoredIn<T>(b).Read(r * n, n, wide + n);
    StoredOut<T> to(x);
    T* row = to.At(r * n, wide + 2 * n);
    OnBestIsa([=] {
      ONNX_FP8_IVDEP  // the sum is an operand or does not overlap it
      for (int64_t i = 0; i < n; ++i) row[i] = p[i] + q[i];
    });
    to.Write(r * n, n, row);
    return row;
  }

  const Tensor &a, &b;
  DType dtype;
  Tensor x;
};

template <bool kAdd>
void LayerNormalization(KernelContext& ctx) {
  constexpr size_t k = kAdd;  // operands and results before the norm's
  Source<kAdd> source(ctx);
  const Tensor& x = source.x;
  Operand(ctx, k + 1);
  Rows rows(ctx, x);
  double epsilon = ctx.Float("epsilon", 1e-5f);
  Tensor y = StoredResult(ctx, k, source.dtype, x.shape());
  std::vector<double> means(static_cast<size_t>(rows.count));
  std::vector<double> inverses(static_cast<size_t>(rows.count));
  double* mean = means.data();
  double* inverse = inverses.data();
  DispatchFloat(source.dtype, ctx.Where(), [&]<typename T>() {
    PerElement<T> scale = ToElements<T>(ctx, k + 1, x, rows);
    PerElement<T> bias = ToElements<T>(ctx, k + 2, x, rows);
    int64_t n = rows.n;
    AmaxMeter meter(ctx, k);
    StoredOut<T> result(y);
    ParallelFor(
        rows.count, RowsPerTask(rows.n), [&](int64_t begin, int64_t end) {
          AmaxMeter::Part part(meter);
          T* wide = WideRows<T>(4, n);
          for (int64_t r = begin; r < end; ++r) {
            const T* row = source.template Row<T>(r, n, wide);
            OnBestIsa([=] {
              mean[r] = MeanOf(row, n);
              double variance =
                  SquaredDeviation(row, n, mean[r]) / static_cast<double>(n);
              inverse[r] = 1.0 / std::sqrt(variance + epsilon);
            });
            T* to = result.At(r * n, wide + 3 * n);
            WriteRow(row, mean[r], inverse[r], scale.Row(r), bias.Row(r), to,
                     n);
            part.Add(to, n);
            result.Write(r * n, n, to);
          }
        });
  });
  WriteStatistics(ctx, k + 1, rows, means);
  WriteStatistics(ctx, k + 2, rows, inverses);
}

// 1 / sqrt(mean(x²) + epsilon)
template <typename T>
double InverseRms(const T* x, int64_t n, double epsilon) {
  double square = LaneSum(n, [=](int64_t i) {
    return static_cast<double>(x[i]) * static_cast<double>(x[i]);
  });
  return 1.0 / std::sqrt(square / static_cast<double>(n) + epsilon);
}

template <bool kAdd>
void RMSNormalization(KernelContext& ctx) {
  constexpr size_t k = kAdd;
  Source<kAdd> source(ctx);
  const Tensor& x = source.x;
  Operand(ctx, k + 1);
  Rows rows(ctx, x);
  double epsilon = ctx.Float("epsilon", 1e-5f);
  Tensor y = StoredResult(ctx, k, source.dtype, x.shape());
  DispatchFloat(source.dtype, ctx.Where(), [&]<typename T>() {
    PerElement<T> scale = ToElements<T>(ctx, k + 1, x, rows);
    int64_t n = rows.n;
    AmaxMeter meter(ctx, k);
    StoredOut<T> result(y);
    ParallelFor(
        rows.count, RowsPerTask(rows.n), [&](int64_t begin, int64_t end) {
          AmaxMeter::Part part(meter);
          T* wide = WideRows<T>(4, n);
          for (int64_t r = begin; r < end; ++r) {
            const T* row = source.template Row<T>(r, n, wide);
            double inverse;
            double* out = &inverse;
            OnBestIsa([=] { *out = InverseRms(row, n, epsilon); });
            T* to = result.At(r * n, wide + 3 * n);
            WriteRow<T>(row, 0.0, inverse, scale.Row(r), nullptr, to, n);
            part.Add(to, n);
            result.Write(r * n, n, to);
          }
        });
  });
}

// --- gradients --------------------------------------------------------------

// One row of either gradient. With h = (x - mean) inv_std and dh = dy scale:
//   dx = inv_std (dh - mean(dh) - h mean(dh h)),  dscale += dy h,  dbias += dy
// RMSNorm has mean 0, and no mean(dh) and no dbias (kCentered false). With
// kAdd, dx also includes `more`, the gradient that x's other readers send back.
template <bool kCentered, bool kAdd, typename T>
void GradientRow(const T* dy, const T* x, const T* scale, double mean,
                 double inv_std, const T* more, T* dx, double* dscale,
                 double* dbias, int64_t n) {
  double count = static_cast<double>(n);
  double dh_mean = 0;
  if constexpr (kCentered) {
    dh_mean = LaneSum(n,
                      [=](int64_t i) {
                        return static_cast<double>(dy[i]) *
                               static_cast<double>(scale[i]);
                      }) /
              count;
  }
  double dhh_mean = LaneSum(n,
                            [=](int64_t i) {
                              double dh = static_cast<double>(dy[i]) *
                                          static_cast<double>(scale[i]);
                              return dh * ((x[i] - mean) * inv_std);
                            }) /
                    count;
  ONNX_FP8_IVDEP  // dx is dy, x or more or does not overlap them
  for (int64_t i = 0; i < n; ++i) {
    double g = dy[i];
    double h = (x[i] - mean) * inv_std;
    dscale[i] += g * h;
    if constexpr (kCentered) dbias[i] += g;
    T own = static_cast<T>((g * scale[i] - dh_mean - h * dhh_mean) * inv_std);
    dx[i] = kAdd ? own + more[i] : own;
  }
}

// The operands that both gradients have, from `first` on. If there is an
// operand 0 before them, it is `more`.
struct GradientOperands {
  GradientOperands(KernelContext& ctx, size_t first)
      : more(Operand(ctx, 0)),
        dy(Operand(ctx, first)),
        x(Operand(ctx, first + 1)),
        scale(Operand(ctx, first + 2)),
        dtype(ComputedAs(x)),
        rows(ctx, x) {
    CheckOperand(ctx, 0, dtype, x.shape());
    CheckOperand(ctx, first, dtype, x.shape());
    CheckOperand(ctx, first + 2, dtype, rows.tail);
    dx = StoredResult(ctx, 0, dtype, x.shape());
    sums = DivideUp(rows.count, kRowsPerSum);
    partial.resize(static_cast<size_t>(2 * sums * rows.n));
  }
  // Partial sums of dscale (which = 0) and dbias (1).
  double* Partial(int which, int64_t sum) {
    return partial.data() + (which * sums + sum) * rows.n;
  }

  const Tensor& more;
  const Tensor& dy;
  const Tensor& x;
  const Tensor& scale;
  DType dtype;
  Rows rows;
  Tensor dx;
  int64_t sums;
  std::vector<double> partial;
};

// out = sum over the partial sums.
template <typename T>
void AddUp(GradientOperands& o, int which, Tensor& out) {
  AddUpRowSums(o.Partial(which, 0), o.sums, o.rows.n, out.data<T>());
}

// Both gradients. statistics(r, x, n) gives the mean and the inverse standard
// deviation of row r, the elements x[0 … n).
template <bool kCentered, bool kAdd, typename Statistics>
void Gradient(KernelContext& ctx, GradientOperands& o, Statistics statistics) {
  DType dtype = o.dtype;
  Tensor dscale = Result(ctx, 1, dtype, o.rows.tail), dbias;
  if (kCentered) dbias = Result(ctx, 2, dtype, o.rows.tail);
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    int64_t n = o.rows.n;
    AmaxMeter meter(ctx, 0);
    StoredIn<T> from_dy(o.dy), from_x(o.x), from_more(o.more);
    StoredOut<T> to(o.dx);
    ParallelFor(o.rows.count, kRowsPerSum, [&](int64_t begin, int64_t end) {
      AmaxMeter::Part part(meter);
      T* wide = WideRows<T>(4, n);
      for (int64_t r = begin; r < end; ++r) {
        const T* dy = from_dy.Read(r * n, n, wide);
        const T* x = from_x.Read(r * n, n, wide + n);
        const T* scale = o.scale.data<T>();
        const T* more = kAdd ? from_more.Read(r * n, n, wide + 2 * n) : nullptr;
        T* dx = to.At(r * n, wide + 3 * n);
        double* ds = o.Partial(0, r / kRowsPerSum);
        double* db = o.Partial(1, r / kRowsPerSum);
        OnBestIsa([=] {
          auto [mean, inv_std] = statistics(r, x, n);
          GradientRow<kCentered, kAdd>(dy, x, scale, mean, inv_std, more, dx,
                                       ds, db, n);
        });
        part.Add(dx, n);
        to.Write(r * n, n, dx);
      }
    });
    AddUp<T>(o, 0, dscale);
    if (kCentered) AddUp<T>(o, 1, dbias);
  });
}

template <bool kAdd>
void LayerNormGrad(KernelContext& ctx) {
  constexpr size_t first = kAdd;
  GradientOperands o(ctx, first);
  Tensor statistics[2];
  for (size_t i : {0, 1}) {
    const Tensor& t = Operand(ctx, first + 3 + i);
    Check(t.shape() == o.rows.statistics, "[", ctx.Where(), "] expected input ",
          first + 3 + i, " of shape ", ToString(o.rows.statistics), ", got ",
          ToString(t.shape()));
    statistics[i] = ConvertTo(t, DType::kDouble);
  }
  const double* mean = statistics[0].data<double>();
  const double* inv_std = statistics[1].data<double>();
  Gradient<true, kAdd>(ctx, o, [=](int64_t r, const auto*, int64_t) {
    return std::pair(mean[r], inv_std[r]);
  });
}

template <bool kAdd>
void RMSNormGrad(KernelContext& ctx) {
  GradientOperands o(ctx, kAdd ? 1 : 0);
  double epsilon = ctx.Float("epsilon", 1e-5f);
  Gradient<false, kAdd>(ctx, o, [=](int64_t, const auto* x, int64_t n) {
    return std::pair(0.0, InverseRms(x, n, epsilon));
  });
}

}  // namespace

void RegisterNorm(KernelRegistry& r) {
  const KernelTraits first = StoredTraits(1), either = StoredTraits(2);
  const KernelTraits any = StoredTraits(3);
  const KernelTraits add{.in_place = {{0, 0}, {1, 0}, {0, 1}, {1, 1}},
                         .measures = {1},
                         .narrow_in = {0, 1},
                         .narrow_out = {0, 1}};
  r.Add("LayerNormalization", Widened<LayerNormalization<false>>, first);
  r.Add("RMSNormalization", Widened<RMSNormalization<false>>, first);
  r.Add("AddLayerNorm", Widened<LayerNormalization<true>>, add, kDomain);
  r.Add("AddLayerNormGrad", Widened<LayerNormGrad<true>>, any, kDomain);
  r.Add("AddRMSNorm", Widened<RMSNormalization<true>>, add, kDomain);
  r.Add("AddRMSNormGrad", Widened<RMSNormGrad<true>>, any, kDomain);
  r.Add("LayerNormGrad", Widened<LayerNormGrad<false>>, either, kDomain);
  r.Add("RMSNorm", Widened<RMSNormalization<false>>, first, kDomain);
  r.Add("RMSNormGrad", Widened<RMSNormGrad<false>>, either, kDomain);
}

}  // namespace onnx_fp8
