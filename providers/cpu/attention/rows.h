// SPDX-License-Identifier: Apache-2.0
//
// The loops between attention's products, over rows of a block of scores.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "providers/cpu/attention/operands.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {

// e^x for x <= 0. The factor is applied to the difference of two scores: scores
// near the largest float would not survive it.
inline float Power(float x) {
  return math::FloatExp2(std::numbers::log2e_v<float> * x);
}
inline double Power(double x) { return std::exp(x); }

template <typename E>
E RoundedTo(SumOf<E> x) {
  if constexpr (kRounded<E>) {
    return {NarrowBFloat16(std::bit_cast<uint32_t>(x))};
  } else {
    return x;
  }
}

// Applies f to pairs of the first 2 w elements of x, halving w, until one
// element is left.
template <int w = kLanes / 2, typename T, typename F>
inline T Fold(T* x, F f) {
  for (int j = 0; j < w; ++j) x[j] = f(x[j], x[j + w]);
  if constexpr (w > 1) return Fold<w / 2>(x, f);
  return x[0];
}

// For each row: the dot product of n elements of x and y.
template <typename T>
void DotRows(const HeadRows<const T>& x, const HeadRows<const T>& y,
             int64_t rows, int64_t n, T* result) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < rows; ++i) {
      const T *a = x.data + i * x.ld, *b = y.data + i * y.ld;
      T lane[kLanes] = {};
      int64_t j = 0;
      for (; j + kLanes <= n; j += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) lane[l] += a[j + l] * b[j + l];
      }
      for (; j < n; ++j) lane[0] += a[j] * b[j];
      result[i] = Fold(lane, [](T u, T v) { return u + v; });
    }
  });
}

// s[j] of the first n columns += bias[j · step].
template <typename T>
void AddBias(T* s, const T* bias, int64_t step, int64_t n) {
  OnBestIsa([=] {
    if (step == 1) {
      for (int64_t j = 0; j < n; ++j) s[j] += bias[j];
    } else {
      for (int64_t j = 0; j < n; ++j) s[j] += bias[j * step];
    }
  });
}

// The softmax of a row whose columns come block by block.
template <typename T>
struct SoftmaxState {
  T largest = -std::numeric_limits<T>::infinity();  // of the scores so far
  T total = 0;                                      // of the powers so far
  // Rescales the results of earlier blocks, which had another largest score.
  T factor = 1;
};

// The next n columns of a row, where n is a multiple of kLanes: replaces the
// scores s by p = Power(s - largest). p may be s.
template <typename E>
inline void SoftmaxRow(SumOf<E>* s, E* p, int64_t n,
                       SoftmaxState<SumOf<E>>& state) {
  using T = SumOf<E>;
  auto larger = [](T x, T y) { return x > y ? x : y; };
  T lane[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) lane[j] = s[j];
  for (int64_t i = kLanes; i < n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lane[j] = larger(lane[j], s[i + j]);
  }
  T largest = larger(Fold(lane, larger), state.largest);
  // As long as a row sees only -infinity, its powers are 0.
  T shift = largest == -std::numeric_limits<T>::infinity() ? 0 : largest;
  T factor = Power(state.largest - shift);
  for (int64_t j = 0; j < kLanes; ++j) lane[j] = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    ONNX_FP8_IVDEP
    for (int64_t j = 0; j < kLanes; ++j) {
      T power = Power(s[i + j] - shift);
      p[i + j] = RoundedTo<E>(power);
      lane[j] += power;
    }
  }
  T total = Fold(lane, [](T x, T y) { return x + y; });
  state = {largest, state.total * factor + total, factor};
}

// Row i of a block of `rows` rows; of its n columns the first
// seen + i · step are seen, no more than n.
template <typename E>
struct SoftmaxRows {
  HeadRows<SumOf<E>> scores;
  HeadRows<E> powers;
  int64_t rows, n;
  int64_t seen, step;
  SoftmaxState<SumOf<E>>* state;

  void Run() const {
    auto x = *this;
    OnBestIsa([x] {
      using T = SumOf<E>;
      int64_t lanes = RoundUp(x.n, kLanes);
      for (int64_t i = 0; i < x.rows; ++i) {
        T* s = x.scores.From(i).data;
        int64_t seen = x.seen + i * x.step;
        seen = seen < 0 ? 0 : seen > x.n ? x.n : seen;
        for (int64_t j = seen; j < lanes; ++j) {
          s[j] = -std::numeric_limits<T>::infinity();
        }
        SoftmaxRow<E>(s, x.powers.From(i).data, lanes, x.state[i]);
      }
    });
  }
};

// Σ e^(s[j] - lse) of n columns.
template <typename T>
T SumOfPowers(const T* s, T lse, int64_t n) {
  T sum = 0;
  T* out = &sum;
  OnBestIsa([=] {
    T lane[kLanes] = {};
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lane[l] += Power(s[j + l] - lse);
    }
    for (; j < n; ++j) lane[0] += Power(s[j] - lse);
    *out = Fold(lane, [](T u, T v) { return u + v; });
  });
  return sum;
}

// Row i of y, n elements, · factor of row i.
template <typename T>
void ScaleRows(const HeadRows<T>& y, int64_t rows, int64_t n,
               const SoftmaxState<T>* state) {
  OnBestIsa([=] {
    for (int64_t i = 0; i < rows; ++i) {
      T factor = state[i].factor;
      if (factor == 1) continue;
      T* row = y.data + i * y.ld;
      for (int64_t j = 0; j < n; ++j) row[j] *= factor;
    }
  });
}

// A block of the transposed scores: a row is a column of the scores, its
// columns `begin` … n are rows of the scores. Row i is hidden from the columns
// before hidden + i · step.
template <typename E>
struct ScoreGradientRows {
  using T = SumOf<E>;
  HeadRows<T> scores, dp;  // the scores, and the gradient of the probabilities
  HeadRows<E> p, ds;       // results; they may be `scores` and `dp`
  int64_t rows, begin, n;
  int64_t hidden, step;
  // For each column: the log of the sum of e^scores, 1 / the sum of e^(scores -
  // lse), and the product of result and its gradient.
  const T *lse, *share, *along;
  T scale;

  // p = e^(scores - lse) share, ds = p (dp - along) scale, both 0 where they
  // are hidden, ds also before `begin`. Operands of bfloat16 are filled up.
  void Run() const {
    auto x = *this;
    OnBestIsa([x] {
      int64_t end = kRounded<E> ? RoundUp(x.n, kLanes) : x.n;
      for (int64_t i = 0; i < x.rows; ++i) {
        const T *s = x.scores.From(i).data, *dp = x.dp.From(i).data;
        E *p = x.p.From(i).data, *ds = x.ds.From(i).data;
        const T *lse = x.lse, *share = x.share, *along = x.along;
        T scale = x.scale;
        ONNX_FP8_IVDEP
        for (int64_t j = x.begin; j < x.n; ++j) {
          T power = Power(s[j] - lse[j]) * share[j];
          p[j] = RoundedTo<E>(power);
          ds[j] = RoundedTo<E>(power * (dp[j] - along[j]) * scale);
        }
        int64_t seen = x.hidden + i * x.step;
        seen = seen > x.n ? x.n : seen;
        for (int64_t j = x.begin; j < seen; ++j) p[j] = E{0};
        for (int64_t j = 0; j < seen; ++j) ds[j] = E{0};
        for (int64_t j = x.n; j < end; ++j) p[j] = ds[j] = E{0};
      }
    });
  }
};

}  // namespace onnx_fp8
