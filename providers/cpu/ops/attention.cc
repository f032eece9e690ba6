// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops, a block of rows at a time: a whole matrix of scores never
// exists. Backward computes the probabilities again, from lse.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/arguments.h"
#include "providers/cpu/broadcast.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/packed_matrix.h"
#include "providers/cpu/math/divide_up.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/register.h"
#include "providers/cpu/stored.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kWide = 32;  // columns that are computed together

// Rows of a block; they fill whole tiles of every kernel. The scores of a block
// stay in the second-level cache, and few of them lie beyond a causal mask.
constexpr int64_t kBlockRows = 42;

int64_t WholeLanes(int64_t n) { return RoundUp(n, kWide); }

// Sizes as in graph/schemas/attention.cc.
struct AttentionSizes {
  int64_t b, t, s, heads, groups, d, e;
  float scale;
  bool causal;
  // Elements of the bias from one batch, head, row, column to the next.
  int64_t bias_step[4] = {0, 0, 0, 0};

  // Elements from one row of scores to the next: one cache line more than a
  // power of two, because otherwise a column of scores would fall into few sets
  // of the cache.
  int64_t Stride() const { return WholeLanes(s) + 16; }
  // Number of columns that rows before `end` see.
  int64_t Columns(int64_t end) const { return causal ? std::min(s, end) : s; }
};

// q, k, v are inputs `first` on; a bias follows if `biased`.
AttentionSizes SizesOf(const KernelContext& ctx, size_t first, bool biased) {
  const Tensor &q = ctx.In(first), &k = ctx.In(first + 1),
               &v = ctx.In(first + 2);
  Check(q.rank() == 3 && k.rank() == 3 && v.rank() == 3, "[", ctx.Where(),
        "] expected q, k, v of rank 3, got ", ToString(q.shape()),
        ToString(k.shape()), ToString(v.shape()));
  AttentionSizes z = {.b = q.dim(0),
                      .t = q.dim(1),
                      .s = k.dim(1),
                      .heads = ctx.Int("heads", 0),
                      .groups = ctx.Int("kv_heads", 0),
                      .d = 0,
                      .e = 0,
                      .scale = ctx.Float("scale", 1.0f),
                      .causal = ctx.Int("causal", 0) != 0};
  Check(z.heads > 0 && z.groups > 0 && z.heads % z.groups == 0 &&
            q.dim(2) % z.heads == 0 && v.dim(2) % z.groups == 0,
        "[", ctx.Where(), "] expected heads that divide the operands, got ",
        z.heads, " and ", z.groups, " of ", ToString(q.shape()),
        ToString(v.shape()));
  z.d = q.dim(2) / z.heads;
  z.e = v.dim(2) / z.groups;
  DType dtype = ComputedAs(q);
  CheckOperand(ctx, first + 1, dtype, {z.b, z.s, z.groups * z.d});
  CheckOperand(ctx, first + 2, dtype, {z.b, z.s, z.groups * z.e});
  if (!biased) return z;
  const Tensor& bias = ctx.In(first + 3);
  Shape scores = {z.b, z.heads, z.t, z.s};
  Check(bias.dtype() == dtype && bias.rank() <= 4 &&
            BroadcastShapes(bias.shape(), scores, ctx.Where()) == scores,
        "[", ctx.Where(), "] expected a bias that broadcasts to ",
        ToString(scores), ", got ", Name(bias.dtype()), ToString(bias.shape()));
  std::ranges::copy(BroadcastStrides(bias.shape(), 4), z.bias_step);
  return z;
}

// s[j] of the first `n` columns + bias; lanes for whole vectors.
template <typename T>
void AddBias(T* s, const T* bias, int64_t step, int64_t n) {
  OnBestIsa([=] {
    if (step == 0) {
      for (int64_t j = 0; j < n; ++j) s[j] += *bias;
    } else {
      for (int64_t j = 0; j < n; ++j) s[j] += bias[j];
    }
  });
}

// Applies f to pairs of elements of x, halving it, until one element is left.
template <typename T, typename F>
inline T Fold(T* x, F f) {
  for (int64_t w = kWide / 2; w > 0; w /= 2) {
    for (int64_t j = 0; j < w; ++j) x[j] = f(x[j], x[j + w]);
  }
  return x[0];
}

// Replaces s by its softmax; returns log Σ e^s. n is a multiple of kWide.
template <typename T>
T SoftmaxRow(T* s, int64_t n) {
  T result = 0;
  T* out = &result;
  OnBestIsa([=] {
    auto larger = [](T x, T y) { return x > y ? x : y; };
    T lane[kWide];
    for (int64_t j = 0; j < kWide; ++j) lane[j] = s[j];
    for (int64_t i = kWide; i < n; i += kWide) {
      for (int64_t j = 0; j < kWide; ++j) {
        lane[j] = larger(lane[j], s[i + j]);
      }
    }
    T largest = Fold(lane, larger);
    for (int64_t j = 0; j < kWide; ++j) lane[j] = 0;
    for (int64_t i = 0; i < n; i += kWide) {
      for (int64_t j = 0; j < kWide; ++j) {
        T e = math::QuickExp(s[i + j] - largest);
        s[i + j] = e;
        lane[j] += e;
      }
    }
    T total = Fold(lane, [](T x, T y) { return x + y; });
    T share = 1 / total;
    for (int64_t i = 0; i < n; ++i) s[i] *= share;
    *out = largest + std::log(total);
  });
  return result;
}

// Replaces s by p = e^(s - lse), and dp by p (dp - along) scale.
template <typename T>
void ScoreGradientRow(T* s, T* dp, T lse, T along, T scale, int64_t n) {
  OnBestIsa([=] {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      T p = math::QuickExp(s[j] - lse);
      s[j] = p;
      dp[j] = p * (dp[j] - along) * scale;
    }
  });
}

template <typename T>
T Dot(const T* x, const T* y, int64_t n) {
  T lane[kWide] = {};
  int64_t j = 0;
  for (; j + kWide <= n; j += kWide) {
    for (int64_t i = 0; i < kWide; ++i) lane[i] += x[j + i] * y[j + i];
  }
  for (; j < n; ++j) lane[0] += x[j] * y[j];
  return Fold(lane, [](T a, T b) { return a + b; });
}

// Rows of n elements, `ld` apart, of one head.
template <typename T>
struct HeadRows {
  T* data;
  int64_t ld;
};

// `rows` rows of n elements of x, `ld` apart, from element `at` on; in `wide`
// if x is kept in 16 bits.
template <typename T>
HeadRows<const T> ReadRows(const Tensor& x, int64_t at, int64_t rows,
                           int64_t ld, int64_t n, std::vector<T>& wide) {
  StoredIn<T> from(x);
  if (!from.narrow()) return {x.data<T>() + at, ld};
  wide.resize(static_cast<size_t>(rows * n));
  for (int64_t i = 0; i < rows; ++i) {
    from.Read(at + i * ld, n, wide.data() + i * n);
  }
  return {wide.data(), n};
}

// Where a kernel writes such rows of y: in y itself, or in `wide`, from where
// WriteRows rounds them. With `zero` they are 0 at first.
template <typename T>
HeadRows<T> RowsToWrite(Tensor& y, int64_t at, int64_t rows, int64_t ld,
                        int64_t n, bool zero, std::vector<T>& wide) {
  HeadRows<T> to;
  if (IsHalf(y.dtype())) {
    wide.resize(static_cast<size_t>(rows * n));
    to = {wide.data(), n};
  } else {
    to = {y.data<T>() + at, ld};
  }
  for (int64_t i = 0; zero && i < rows; ++i) {
    std::fill_n(to.data + i * to.ld, n, T{0});
  }
  return to;
}

template <typename T>
void WriteRows(Tensor& y, int64_t at, int64_t rows, int64_t ld, int64_t n,
               const HeadRows<T>& from) {
  StoredOut<T> to(y);
  for (int64_t i = 0; i < rows; ++i) {
    to.Write(at + i * ld, n, from.data + i * from.ld);
  }
}

// Memory that a thread keeps from task to task.
template <typename T>
struct Workspace {
  PackedMatrix k, k_transposed, v, v_transposed, q_rows, dy_rows;
  std::vector<T> scores, dscores;
  // Widened operands and results that are rounded later.
  std::vector<T> wide_q, wide_k, wide_v, wide_y, wide_dy;
  std::vector<T> wide_dq, wide_dk, wide_dv;
};

// One head of one batch. In memory, rows of q and y are ld_q and ld_y elements
// apart, those of k and v ld_k and ld_v; they begin at at_q, at_y, at_k, at_v.
template <typename T>
struct Head {
  const AttentionSizes& z;
  const Tensor &k_, &v_;
  int64_t ld_q, ld_k, ld_v, ld_y;
  int64_t at_q, at_k, at_v, at_y;
  HeadRows<const T> q;
  const T* bias;

  Head(const KernelContext& ctx, const AttentionSizes& sizes, size_t first,
       bool biased, int64_t batch, int64_t head, Workspace<T>& w)
      : z(sizes),
        k_(ctx.In(first + 1)),
        v_(ctx.In(first + 2)),
        ld_q(z.heads * z.d),
        ld_k(z.groups * z.d),
        ld_v(z.groups * z.e),
        ld_y(z.heads * z.e) {
    int64_t group = head / (z.heads / z.groups);
    at_q = batch * z.t * ld_q + head * z.d;
    at_k = batch * z.s * ld_k + group * z.d;
    at_v = batch * z.s * ld_v + group * z.e;
    at_y = batch * z.t * ld_y + head * z.e;
    q = ReadRows<T>(ctx.In(first), at_q, z.t, ld_q, z.d, w.wide_q);
    bias = biased ? ctx.In(first + 3).data<T>() + batch * z.bias_step[0] +
                        head * z.bias_step[1]
                  : nullptr;
  }

  HeadRows<const T> K(Workspace<T>& w) const {
    return ReadRows<T>(k_, at_k, z.s, ld_k, z.d, w.wide_k);
  }
  HeadRows<const T> V(Workspace<T>& w) const {
    return ReadRows<T>(v_, at_v, z.s, ld_v, z.e, w.wide_v);
  }

  static GemmOperand Rows(const T* data, int64_t ld, bool transposed = false) {
    return {data, DTypeOf<T>(), ld, transposed};
  }
  static GemmOperand Rows(const HeadRows<const T>& x, bool transposed = false) {
    return Rows(x.data, x.ld, transposed);
  }

  // scores (m, n) = scale · q kᵀ + bias; -infinity for hidden scores, and for
  // those that fill n up to a multiple of kWide. Returns n.
  int64_t Scores(const PackedMatrix& k_transposed, int64_t row, int64_t m,
                 T* scores) const {
    int64_t n = z.Columns(row + m), stride = z.Stride();
    k_transposed.Multiply({.m = m,
                           .n = std::min(WholeLanes(n), z.s),
                           .k = z.d,
                           .a = Rows(q.data + row * q.ld, q.ld),
                           .scale = z.scale,
                           .c = scores,
                           .ldc = stride});
    for (int64_t i = 0; i < m; ++i) {
      T* to = scores + i * stride;
      int64_t seen = z.Columns(row + i + 1);
      if (bias) {
        AddBias(to, bias + (row + i) * z.bias_step[2], z.bias_step[3], seen);
      }
      std::fill(to + seen, to + WholeLanes(n),
                -std::numeric_limits<T>::infinity());
    }
    return n;
  }
};

// Rows of n elements, `stride` apart.
template <typename T>
void MeasureRows(AmaxMeter& meter, const T* x, int64_t rows, int64_t stride,
                 int64_t n) {
  AmaxMeter::Part part(meter);
  for (int64_t i = 0; i < rows; ++i) part.Add(x + i * stride, n);
}

template <typename T>
void RunForward(KernelContext& ctx, const AttentionSizes& z, bool biased,
                Tensor& y, T* lse) {
  AmaxMeter meter(ctx, 0);
  if (z.s == 0) {  // an empty sum
    std::memset(y.raw(), 0, y.bytes());
    if (lse) {
      std::fill_n(lse, z.b * z.heads * z.t,
                  -std::numeric_limits<T>::infinity());
    }
    return;
  }
  int64_t stride = z.Stride();
  ParallelTasks(z.b * z.heads, [&](int64_t task) {
    thread_local Workspace<T> w;
    Head<T> head(ctx, z, 0, biased, task / z.heads, task % z.heads, w);
    HeadRows<T> to =
        RowsToWrite<T>(y, head.at_y, z.t, head.ld_y, z.e, false, w.wide_y);
    w.scores.resize(static_cast<size_t>(kBlockRows * stride));
    w.k_transposed.Pack(head.Rows(head.K(w), true), z.d, z.s);
    w.v.Pack(head.Rows(head.V(w)), z.s, z.e);
    T* p = w.scores.data();
    for (int64_t row = 0; row < z.t; row += kBlockRows) {
      int64_t m = std::min(kBlockRows, z.t - row);
      int64_t n = head.Scores(w.k_transposed, row, m, p);
      for (int64_t i = 0; i < m; ++i) {
        T log_sum = SoftmaxRow(p + i * stride, WholeLanes(n));
        if (lse) lse[task * z.t + row + i] = log_sum;
      }
      w.v.Multiply({.m = m,
                    .n = z.e,
                    .k = n,
                    .a = head.Rows(p, stride),
                    .c = to.data + row * to.ld,
                    .ldc = to.ld});
    }
    MeasureRows(meter, to.data, z.t, to.ld, z.e);
    WriteRows(y, head.at_y, z.t, head.ld_y, z.e, to);
  });
}

void Forward(KernelContext& ctx, bool biased) {
  AttentionSizes z = SizesOf(ctx, 0, biased);
  DType dtype = ComputedAs(ctx.In(0));
  Tensor y = StoredResult(ctx, 0, dtype, {z.b, z.t, z.heads * z.e});
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    T* lse = ctx.HasOut(1) ? ctx.Out(1, dtype, {z.b, z.heads, z.t}).data<T>()
                           : nullptr;
    RunForward<T>(ctx, z, biased, y, lse);
  });
}

// Of one head; data is null where nobody reads the gradient.
template <typename T>
struct Gradients {
  HeadRows<T> dq, dk, dv;
};

// Rows row … row + m of one head: writes dq, adds to dk and dv.
template <typename T>
void BackwardBlock(const Head<T>& head, int64_t row, int64_t m,
                   const HeadRows<const T>& dy, const HeadRows<const T>& y,
                   const T* lse, Workspace<T>& w, const Gradients<T>& to) {
  const AttentionSizes& z = head.z;
  T *s = w.scores.data(), *ds = w.dscores.data();
  int64_t n = head.Scores(w.k_transposed, row, m, s), stride = z.Stride();
  const T* dy_rows = dy.data + row * dy.ld;
  const T* q_rows = head.q.data + row * head.q.ld;
  w.v_transposed.Multiply({.m = m,
                           .n = std::min(WholeLanes(n), z.s),
                           .k = z.e,
                           .a = head.Rows(dy_rows, dy.ld),
                           .c = ds,
                           .ldc = stride});
  for (int64_t i = 0; i < m; ++i) {
    T along = Dot(dy_rows + i * dy.ld, y.data + (row + i) * y.ld, z.e);
    ScoreGradientRow<T>(s + i * stride, ds + i * stride, lse[row + i], along,
                        z.scale, n);
  }
  if (to.dq.data) {
    w.k.Multiply({.m = m,
                  .n = z.d,
                  .k = n,
                  .a = head.Rows(ds, stride),
                  .c = to.dq.data + row * to.dq.ld,
                  .ldc = to.dq.ld});
  }
  if (to.dk.data) {
    w.q_rows.Pack(head.Rows(q_rows, head.q.ld), m, z.d);
    w.q_rows.Multiply({.m = n,
                       .n = z.d,
                       .k = m,
                       .a = head.Rows(ds, stride, true),
                       .accumulate = true,
                       .c = to.dk.data,
                       .ldc = to.dk.ld});
  }
  if (to.dv.data) {
    w.dy_rows.Pack(head.Rows(dy_rows, dy.ld), m, z.e);
    w.dy_rows.Multiply({.m = n,
                        .n = z.e,
                        .k = m,
                        .a = head.Rows(s, stride, true),
                        .accumulate = true,
                        .c = to.dv.data,
                        .ldc = to.dv.ld});
  }
}

// One task per group of heads: they share dk and dv.
template <typename T>
void RunBackward(KernelContext& ctx, const AttentionSizes& z, bool biased,
                 Tensor (&all)[3]) {
  size_t last = biased ? 5 : 4;
  const Tensor &dys = ctx.In(0), &ys = ctx.In(last);
  const T* lse = ctx.In(last + 1).data<T>();
  int64_t repeats = z.heads / z.groups;
  AmaxMeter of_q(ctx, 0), of_k(ctx, 1), of_v(ctx, 2);
  ParallelTasks(z.b * z.groups, [&](int64_t task) {
    int64_t batch = task / z.groups, group = task % z.groups;
    thread_local Workspace<T> w;
    auto size = static_cast<size_t>(kBlockRows * z.Stride());
    w.scores.resize(size);
    w.dscores.resize(size);
    Gradients<T> to = {};
    for (int64_t r = 0; r < repeats; ++r) {
      int64_t h = group * repeats + r;
      Head<T> head(ctx, z, 1, biased, batch, h, w);
      if (r == 0) {
        HeadRows<const T> k = head.K(w), v = head.V(w);
        w.k_transposed.Pack(head.Rows(k, true), z.d, z.s);
        w.v_transposed.Pack(head.Rows(v, true), z.e, z.s);
        w.k.Pack(head.Rows(k), z.s, z.d);
        if (ctx.HasOut(1)) {
          to.dk = RowsToWrite<T>(all[1], head.at_k, z.s, head.ld_k, z.d, true,
                                 w.wide_dk);
        }
        if (ctx.HasOut(2)) {
          to.dv = RowsToWrite<T>(all[2], head.at_v, z.s, head.ld_v, z.e, true,
                                 w.wide_dv);
        }
      }
      if (ctx.HasOut(0)) {
        to.dq = RowsToWrite<T>(all[0], head.at_q, z.t, head.ld_q, z.d, false,
                               w.wide_dq);
      }
      auto dy = ReadRows<T>(dys, head.at_y, z.t, head.ld_y, z.e, w.wide_dy);
      auto y = ReadRows<T>(ys, head.at_y, z.t, head.ld_y, z.e, w.wide_y);
      for (int64_t row = 0; row < z.t; row += kBlockRows) {
        BackwardBlock<T>(head, row, std::min(kBlockRows, z.t - row), dy, y,
                         lse + (batch * z.heads + h) * z.t, w, to);
      }
      if (to.dq.data) {
        MeasureRows(of_q, to.dq.data, z.t, to.dq.ld, z.d);
        WriteRows(all[0], head.at_q, z.t, head.ld_q, z.d, to.dq);
      }
      if (r < repeats - 1) continue;
      if (to.dk.data) {
        MeasureRows(of_k, to.dk.data, z.s, to.dk.ld, z.d);
        WriteRows(all[1], head.at_k, z.s, head.ld_k, z.d, to.dk);
      }
      if (to.dv.data) {
        MeasureRows(of_v, to.dv.data, z.s, to.dv.ld, z.e);
        WriteRows(all[2], head.at_v, z.s, head.ld_v, z.e, to.dv);
      }
    }
  });
}

void Backward(KernelContext& ctx, bool biased) {
  AttentionSizes z = SizesOf(ctx, 1, biased);
  DType dtype = ComputedAs(ctx.In(1));
  size_t last = biased ? 5 : 4;
  CheckOperand(ctx, 0, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last + 1, dtype, {z.b, z.heads, z.t});
  Tensor all[3];
  for (size_t i = 0; i < 3; ++i) {
    if (ctx.HasOut(i)) {
      all[i] = StoredResult(ctx, i, dtype, ctx.In(i + 1).shape());
    }
  }
  if (z.s == 0 || z.t == 0) {
    for (Tensor& x : all) {
      if (x.defined()) std::memset(x.raw(), 0, x.bytes());
    }
    for (size_t i = 0; i < 3; ++i) AmaxMeter(ctx, i);
    return;
  }
  DispatchFloat(dtype, ctx.Where(),
                [&]<typename T>() { RunBackward<T>(ctx, z, biased, all); });
}

void Attention(KernelContext& ctx) { Forward(ctx, false); }
void AttentionBias(KernelContext& ctx) { Forward(ctx, true); }
void AttentionGrad(KernelContext& ctx) { Backward(ctx, false); }
void AttentionBiasGrad(KernelContext& ctx) { Backward(ctx, true); }

}  // namespace

void RegisterAttention(KernelRegistry& r) {
  const KernelTraits forward{
      .measures = {0}, .narrow_in = {0, 1, 2}, .narrow_out = {0}};
  KernelTraits backward{.measures = {0, 1, 2},
                        .narrow_in = {0, 1, 2, 3, 4},
                        .narrow_out = {0, 1, 2}};
  r.Add("Attention", Attention, forward, kDomain);
  r.Add("AttentionBias", AttentionBias, forward, kDomain);
  r.Add("AttentionGrad", AttentionGrad, backward, kDomain);
  backward.narrow_in = {0, 1, 2, 3, 5};
  r.Add("AttentionBiasGrad", AttentionBiasGrad, backward, kDomain);
}

}  // namespace onnx_fp8
