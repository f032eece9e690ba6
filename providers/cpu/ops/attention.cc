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
  CheckOperand(ctx, first + 1, q.dtype(), {z.b, z.s, z.groups * z.d});
  CheckOperand(ctx, first + 2, q.dtype(), {z.b, z.s, z.groups * z.e});
  if (!biased) return z;
  const Tensor& bias = ctx.In(first + 3);
  Shape scores = {z.b, z.heads, z.t, z.s};
  Check(bias.dtype() == q.dtype() && bias.rank() <= 4 &&
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

// Memory that a thread keeps from task to task.
template <typename T>
struct Workspace {
  PackedMatrix k, k_transposed, v, v_transposed, q_rows, dy_rows;
  std::vector<T> scores, dscores;
};

// One head of one batch. Rows of q and y are ld_q and ld_y elements apart,
// those of k and v ld_k and ld_v.
template <typename T>
struct Head {
  const AttentionSizes& z;
  const T *q, *k, *v, *bias;
  int64_t ld_q, ld_k, ld_v, ld_y;

  Head(const KernelContext& ctx, const AttentionSizes& sizes, size_t first,
       bool biased, int64_t batch, int64_t head)
      : z(sizes),
        ld_q(z.heads * z.d),
        ld_k(z.groups * z.d),
        ld_v(z.groups * z.e),
        ld_y(z.heads * z.e) {
    int64_t group = head / (z.heads / z.groups);
    q = ctx.In(first).data<T>() + batch * z.t * ld_q + head * z.d;
    k = ctx.In(first + 1).data<T>() + batch * z.s * ld_k + group * z.d;
    v = ctx.In(first + 2).data<T>() + batch * z.s * ld_v + group * z.e;
    bias = biased ? ctx.In(first + 3).data<T>() + batch * z.bias_step[0] +
                        head * z.bias_step[1]
                  : nullptr;
  }

  static GemmOperand Rows(const T* data, int64_t ld, bool transposed = false) {
    return {data, DTypeOf<T>(), ld, transposed};
  }

  // scores (m, n) = scale · q kᵀ + bias; -infinity for hidden scores, and for
  // those that fill n up to a multiple of kWide. Returns n.
  int64_t Scores(const PackedMatrix& k_transposed, int64_t row, int64_t m,
                 T* scores) const {
    int64_t n = z.Columns(row + m), stride = z.Stride();
    k_transposed.Multiply({.m = m,
                           .n = std::min(WholeLanes(n), z.s),
                           .k = z.d,
                           .a = Rows(q + row * ld_q, ld_q),
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
void RunForward(KernelContext& ctx, const AttentionSizes& z, bool biased, T* y,
                T* lse) {
  AmaxMeter meter(ctx, 0);
  if (z.s == 0) {  // an empty sum
    std::fill_n(y, z.b * z.t * z.heads * z.e, T{0});
    if (lse) {
      std::fill_n(lse, z.b * z.heads * z.t,
                  -std::numeric_limits<T>::infinity());
    }
    return;
  }
  int64_t stride = z.Stride();
  ParallelTasks(z.b * z.heads, [&](int64_t task) {
    Head<T> head(ctx, z, 0, biased, task / z.heads, task % z.heads);
    T* to = y + task / z.heads * z.t * head.ld_y + task % z.heads * z.e;
    thread_local Workspace<T> w;
    w.scores.resize(static_cast<size_t>(kBlockRows * stride));
    w.k_transposed.Pack(head.Rows(head.k, head.ld_k, true), z.d, z.s);
    w.v.Pack(head.Rows(head.v, head.ld_v), z.s, z.e);
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
                    .c = to + row * head.ld_y,
                    .ldc = head.ld_y});
    }
    MeasureRows(meter, to, z.t, head.ld_y, z.e);
  });
}

void Forward(KernelContext& ctx, bool biased) {
  AttentionSizes z = SizesOf(ctx, 0, biased);
  DType dtype = ctx.In(0).dtype();
  Tensor& y = ctx.Out(0, dtype, {z.b, z.t, z.heads * z.e});
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    T* lse = ctx.HasOut(1) ? ctx.Out(1, dtype, {z.b, z.heads, z.t}).data<T>()
                           : nullptr;
    RunForward<T>(ctx, z, biased, y.data<T>(), lse);
  });
}

template <typename T>
struct Gradients {
  T *dq, *dk, *dv;
};

// Rows row … row + m of one head: writes dq, adds to dk and dv.
template <typename T>
void BackwardBlock(const Head<T>& head, int64_t row, int64_t m, const T* dy,
                   const T* y, const T* lse, Workspace<T>& w,
                   const Gradients<T>& to) {
  const AttentionSizes& z = head.z;
  T *s = w.scores.data(), *ds = w.dscores.data();
  int64_t n = head.Scores(w.k_transposed, row, m, s), stride = z.Stride();
  const T *dy_rows = dy + row * head.ld_y, *q_rows = head.q + row * head.ld_q;
  w.v_transposed.Multiply({.m = m,
                           .n = std::min(WholeLanes(n), z.s),
                           .k = z.e,
                           .a = head.Rows(dy_rows, head.ld_y),
                           .c = ds,
                           .ldc = stride});
  for (int64_t i = 0; i < m; ++i) {
    T along = Dot(dy_rows + i * head.ld_y, y + (row + i) * head.ld_y, z.e);
    ScoreGradientRow<T>(s + i * stride, ds + i * stride, lse[row + i], along,
                        z.scale, n);
  }
  if (to.dq) {
    w.k.Multiply({.m = m,
                  .n = z.d,
                  .k = n,
                  .a = head.Rows(ds, stride),
                  .c = to.dq + row * head.ld_q,
                  .ldc = head.ld_q});
  }
  if (to.dk) {
    w.q_rows.Pack(head.Rows(q_rows, head.ld_q), m, z.d);
    w.q_rows.Multiply({.m = n,
                       .n = z.d,
                       .k = m,
                       .a = head.Rows(ds, stride, true),
                       .accumulate = true,
                       .c = to.dk,
                       .ldc = head.ld_k});
  }
  if (to.dv) {
    w.dy_rows.Pack(head.Rows(dy_rows, head.ld_y), m, z.e);
    w.dy_rows.Multiply({.m = n,
                        .n = z.e,
                        .k = m,
                        .a = head.Rows(s, stride, true),
                        .accumulate = true,
                        .c = to.dv,
                        .ldc = head.ld_v});
  }
}

// One task per group of heads: they share dk and dv.
template <typename T>
void RunBackward(KernelContext& ctx, const AttentionSizes& z, bool biased,
                 const Gradients<T>& all) {
  size_t last = biased ? 5 : 4;
  const T *dy = ctx.In(0).data<T>(), *y = ctx.In(last).data<T>();
  const T* lse = ctx.In(last + 1).data<T>();
  int64_t repeats = z.heads / z.groups;
  AmaxMeter of_q(ctx, 0), of_k(ctx, 1), of_v(ctx, 2);
  if (z.s == 0) return;  // all are 0
  ParallelTasks(z.b * z.groups, [&](int64_t task) {
    int64_t batch = task / z.groups, group = task % z.groups;
    thread_local Workspace<T> w;
    auto size = static_cast<size_t>(kBlockRows * z.Stride());
    w.scores.resize(size);
    w.dscores.resize(size);
    for (int64_t r = 0; r < repeats; ++r) {
      int64_t h = group * repeats + r;
      Head<T> head(ctx, z, 1, biased, batch, h);
      if (r == 0) {
        w.k_transposed.Pack(head.Rows(head.k, head.ld_k, true), z.d, z.s);
        w.v_transposed.Pack(head.Rows(head.v, head.ld_v, true), z.e, z.s);
        w.k.Pack(head.Rows(head.k, head.ld_k), z.s, z.d);
      }
      int64_t at_y = batch * z.t * head.ld_y + h * z.e;
      Gradients<T> to = {
          all.dq ? all.dq + batch * z.t * head.ld_q + h * z.d : nullptr,
          all.dk ? all.dk + batch * z.s * head.ld_k + group * z.d : nullptr,
          all.dv ? all.dv + batch * z.s * head.ld_v + group * z.e : nullptr};
      for (int64_t row = 0; row < z.t; row += kBlockRows) {
        BackwardBlock<T>(head, row, std::min(kBlockRows, z.t - row), dy + at_y,
                         y + at_y, lse + (batch * z.heads + h) * z.t, w, to);
      }
      if (to.dq) MeasureRows(of_q, to.dq, z.t, head.ld_q, z.d);
      if (r < repeats - 1) continue;
      if (to.dk) MeasureRows(of_k, to.dk, z.s, head.ld_k, z.d);
      if (to.dv) MeasureRows(of_v, to.dv, z.s, head.ld_v, z.e);
    }
  });
}

void Backward(KernelContext& ctx, bool biased) {
  AttentionSizes z = SizesOf(ctx, 1, biased);
  DType dtype = ctx.In(1).dtype();
  size_t last = biased ? 5 : 4;
  CheckOperand(ctx, 0, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last + 1, dtype, {z.b, z.heads, z.t});
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    auto zeroed = [&](size_t i) -> T* {
      if (!ctx.HasOut(i)) return nullptr;
      Tensor& x = ctx.Out(i, dtype, ctx.In(i + 1).shape());
      std::memset(x.raw(), 0, x.bytes());
      return x.data<T>();
    };
    Gradients<T> all = {zeroed(0), zeroed(1), zeroed(2)};
    RunBackward<T>(ctx, z, biased, all);
  });
}

void Attention(KernelContext& ctx) { Forward(ctx, false); }
void AttentionBias(KernelContext& ctx) { Forward(ctx, true); }
void AttentionGrad(KernelContext& ctx) { Backward(ctx, false); }
void AttentionBiasGrad(KernelContext& ctx) { Backward(ctx, true); }

}  // namespace

void RegisterAttention(KernelRegistry& r) {
  const KernelTraits forward{.measures = {0}}, backward{.measures = {0, 1, 2}};
  r.Add("Attention", Attention, forward, kDomain);
  r.Add("AttentionBias", AttentionBias, forward, kDomain);
  r.Add("AttentionGrad", AttentionGrad, backward, kDomain);
  r.Add("AttentionBiasGrad", AttentionBiasGrad, backward, kDomain);
}

}  // namespace onnx_fp8
