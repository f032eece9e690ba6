// SPDX-License-Identifier: Apache-2.0
//
// Activations and the gradients of Gelu. Formulas are evaluated in double, for
// float results too (see elementary.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "base/saturating_cast.h"
#include "graph/graph.h"
#include "providers/cpu/elementwise.h"
#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/ops/row_sums.h"
#include "providers/kernel.h"
#include "providers/ops/divide_up.h"
#include "providers/seed.h"

namespace onnx_fp8 {
namespace {

using math::Wide;

// --- piecewise linear -------------------------------------------------------

// Selections are written so that NaN falls through to x.
void Relu(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto relu = [](auto v) { return v < 0 ? decltype(v){0} : v; };
  if (IsFloat(x.dtype())) return FloatMap(ctx, relu);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    Map(x.data<T>(), y.data<T>(), x.size(), relu);
  });
}

void LeakyRelu(KernelContext& ctx) {
  float alpha = ctx.Float("alpha", 0.01f);
  FloatMap(ctx, [=](auto x) {
    return x < 0 ? static_cast<decltype(x)>(alpha) * x : x;
  });
}

void ThresholdedRelu(KernelContext& ctx) {
  float alpha = ctx.Float("alpha", 1.0f);
  FloatMap(ctx, [=](auto x) { return x <= alpha ? decltype(x){0} : x; });
}

template <typename T>
T Bounded(T x, T low, T high) {
  T y = x < low ? low : x;
  return y > high ? high : y;
}

void HardSigmoid(KernelContext& ctx) {
  double alpha = ctx.Float("alpha", 0.2f);
  double beta = ctx.Float("beta", 0.5f);
  FloatMap(ctx, [=](auto x) {
    return static_cast<decltype(x)>(Bounded(alpha * x + beta, 0.0, 1.0));
  });
}

void HardSwish(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) {
    return static_cast<decltype(x)>(x * Bounded(x / 6.0 + 0.5, 0.0, 1.0));
  });
}

void Shrink(KernelContext& ctx) {
  double bias = ctx.Float("bias", 0.0f);
  double threshold = ctx.Float("lambd", 0.5f);
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    MapScalar(x.data<T>(), y.data<T>(), x.size(), [=](T v) {
      auto wide = static_cast<double>(v);
      if (wide < -threshold) return SaturatingCast<T>(wide + bias);
      if (wide > threshold) return SaturatingCast<T>(wide - bias);
      return v != v ? v : T{0};
    });
  });
}

// A bound of Clip: input i, or `otherwise` if it is omitted.
template <typename T>
T Bound(const KernelContext& ctx, size_t i, T otherwise) {
  if (!ctx.HasIn(i)) return otherwise;
  const Tensor& bound = ctx.In(i);
  Check(bound.dtype() == DTypeOf<T>() && bound.size() == 1, "[", ctx.Where(),
        "] expected a bound of one ", Name(DTypeOf<T>()), ", got ",
        Name(bound.dtype()), " ", ToString(bound.shape()));
  return bound.data<T>()[0];
}

void Clip(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    using Limits = std::numeric_limits<T>;
    bool infinite = Limits::has_infinity;
    T low = Bound<T>(ctx, 1, infinite ? -Limits::infinity() : Limits::lowest());
    T high = Bound<T>(ctx, 2, infinite ? Limits::infinity() : Limits::max());
    Map(x.data<T>(), y.data<T>(), x.size(),
        [=](T v) { return Bounded(v, low, high); });
  });
}

// --- smooth -----------------------------------------------------------------

void Elu(KernelContext& ctx) {
  double alpha = ctx.Float("alpha", 1.0f);
  FloatMap(ctx, [=](auto x) {
    using T = decltype(x);
    auto y = static_cast<T>(alpha * Wide<T>::Expm1(x));
    return x > 0 ? x : y;
  });
}

void Selu(KernelContext& ctx) {
  double alpha = ctx.Float("alpha", 1.67326319217681884765625f);
  double gamma = ctx.Float("gamma", 1.05070102214813232421875f);
  FloatMap(ctx, [=](auto x) {
    using T = decltype(x);
    double y = x > 0 ? static_cast<double>(x) : alpha * Wide<T>::Expm1(x);
    return static_cast<T>(gamma * y);
  });
}

void Celu(KernelContext& ctx) {
  double alpha = ctx.Float("alpha", 1.0f);
  Check(alpha != 0, "[", ctx.Where(), "] expected alpha other than 0, got 0");
  FloatMap(ctx, [=](auto x) {
    using T = decltype(x);
    auto y = static_cast<T>(alpha * Wide<T>::Expm1(x / alpha));
    return x > 0 ? x : y;
  });
}

void Sigmoid(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return math::Sigmoid(x); });
}

void Tanh(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return math::Tanh(x); });
}

// x sigmoid(a x); also Gelu's approximation, where a x is a polynomial.
template <typename T>
double TimesSigmoid(double x, double u) {
  return x / (1.0 + Wide<T>::Exp(-u));
}

void Swish(KernelContext& ctx) {
  double alpha = ctx.Float("alpha", 1.0f);
  FloatMap(ctx, [=](auto x) {
    using T = decltype(x);
    return static_cast<T>(TimesSigmoid<T>(x, alpha * x));
  });
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)
void Softplus(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) {
    using T = decltype(x);
    double e = Wide<T>::Exp(-std::fabs(static_cast<double>(x)));
    return static_cast<T>((x < 0 ? 0.0 : x) + Wide<T>::Log1p(e));
  });
}

void Softsign(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return x / (decltype(x){1} + std::fabs(x)); });
}

// x tanh(log(1 + e)) with e = e^x: tanh(log(s)) = (s² - 1) / (s² + 1). Beyond
// 40 it is x to the last bit, and e² would overflow.
void Mish(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) {
    using T = decltype(x);
    double e = Wide<T>::Exp(x > 40 ? 40.0 : static_cast<double>(x));
    double n = e * (e + 2.0);
    return static_cast<T>(x * (n / (n + 2.0)));
  });
}

// Float arithmetic is worth it here: a transformer computes millions of these
// in every step.
math::FloatNormalValues NormalOf(float x) { return math::FloatNormal(x); }
math::Normal NormalOf(double x) {
  return math::Wide<double>::StandardNormal(x);
}
// x sigmoid(x)
void Silu(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return x / (1 + math::QuickExp(-x)); });
}

// Twice the argument of tanh in Gelu's approximation, because
// (1 + tanh(u)) / 2 = sigmoid(2u), and its derivative.
constexpr double kGeluScale = 2 * 0.7978845608028654;  // 2 sqrt(2/pi)
constexpr double kGeluCubic = 0.044715;

double GeluArgument(double x) {
  return kGeluScale * x * (1.0 + kGeluCubic * x * x);
}
double GeluArgumentSlope(double x) {
  return kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
}

void Gelu(KernelContext& ctx) {
  if (ChoiceIn<bool>(ctx, "approximate", "none", {"none", "tanh"})) {
    return FloatMap(ctx, [](auto x) {
      using T = decltype(x);
      return static_cast<T>(TimesSigmoid<T>(x, GeluArgument(x)));
    });
  }
  FloatMap(ctx, [](auto x) { return x * NormalOf(x).cdf; });
}

// --- gradients: (dy, x) -> dx -----------------------------------------------

// dx = dy f(x).
template <typename F>
void GradientMap(KernelContext& ctx, F f) {
  const Tensor& dy = Operand(ctx, 0);
  const Tensor& x = Operand(ctx, 1);
  DType dtype = ComputedAs(x);
  CheckOperand(ctx, 0, dtype, x.shape());
  Tensor dx = StoredResult(ctx, 0, dtype, x.shape());
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    Map2<T>(ctx, dy, x, dx, [=](T g, T v) { return static_cast<T>(g * f(v)); });
  });
}

// dx = dy f(x), and dbias, the sum of dx over all but the last axis, in double.
// dx is summed before it is rounded to 16 bits.
template <typename F>
void BiasGradientMap(KernelContext& ctx, F f) {
  constexpr int64_t kBlock = kRowsPerSum;
  const Tensor &dy = Operand(ctx, 0), &x = Operand(ctx, 1);
  DType dtype = ComputedAs(x);
  CheckOperand(ctx, 0, dtype, x.shape());
  Check(x.rank() > 0, "[", ctx.Where(), "] expected rows, got a scalar");
  int64_t n = x.dim(-1), rows = n > 0 ? x.size() / n : 0;
  int64_t blocks = DivideUp(rows, kBlock);
  Tensor dx = StoredResult(ctx, 0, dtype, x.shape());
  Tensor dbias = Result(ctx, 1, dtype, {n});
  std::vector<double> partial(static_cast<size_t>(blocks * n));
  double* sums = partial.data();
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    StoredIn<T> from_dy(dy), from_x(x);
    StoredOut<T> to(dx);
    AmaxMeter meter(ctx, 0);
    auto run = [&](int64_t row, int64_t at, int64_t count, T* wide,
                   AmaxMeter::Part& part) {
      const T* g = from_dy.Read(row * n + at, count, wide);
      const T* v = from_x.Read(row * n + at, count, wide + kStoredBlock);
      T* out = to.At(row * n + at, wide + 2 * kStoredBlock);
      double* sum = sums + row / kBlock * n + at;
      OnBestIsa([=] {
        ONNX_FP8_IVDEP  // dx is an operand or overlaps none
        for (int64_t i = 0; i < count; ++i) {
          T d = static_cast<T>(g[i] * f(v[i]));
          out[i] = d;
          sum[i] += static_cast<double>(d);
        }
      });
      part.Add(out, count);
      to.Write(row * n + at, count, out);
    };
    ParallelFor(blocks, RowsPerTask(kBlock * n),
                [&](int64_t first, int64_t last) {
                  AmaxMeter::Part part(meter);
                  alignas(64) T wide[3 * kStoredBlock];
                  int64_t end = std::min(last * kBlock, rows);
                  for (int64_t row = first * kBlock; row < end; ++row) {
                    for (int64_t at = 0; at < n; at += kStoredBlock) {
                      run(row, at, std::min(kStoredBlock, n - at), wide, part);
                    }
                  }
                });
    AddUpRowSums(sums, blocks, n, dbias.data<T>());
  });
}

// y = x Φ(x): y' = Φ(x) + x φ(x)
struct GeluSlope {
  template <typename T>
  auto operator()(T x) const {
    auto normal = NormalOf(x);
    return normal.cdf + x * normal.pdf;
  }
};

// y = x s with s = sigmoid(u): y' = s + x s (1 - s) u'
struct GeluTanhSlope {
  template <typename T>
  auto operator()(T x) const {
    double s = TimesSigmoid<T>(1.0, GeluArgument(x));
    return s + x * s * (1.0 - s) * GeluArgumentSlope(x);
  }
};

// x s and its slope, s (1 + x (1 - s)), with s = sigmoid(x).
template <typename T>
struct SiluParts {
  explicit SiluParts(T x) {
    constexpr T kLowest = -87;  // e^87 is finite; what comes before it is 0
    bool far = x < kLowest;
    T e = math::QuickExp(far ? -kLowest : -x);
    T s = 1 / (1 + e);
    y = far ? x * 0 : x * s;
    slope = far ? x * 0 : s * (1 + x * (e * s));  // 1 - s is e s
  }
  T y, slope;
};

struct SiluSlope {
  template <typename T>
  auto operator()(T x) const {
    return SiluParts<T>(x).slope;
  }
};

template <typename Slope>
void Gradient(KernelContext& ctx) {
  GradientMap(ctx, Slope());
}

template <typename Slope>
void BiasGradient(KernelContext& ctx) {
  BiasGradientMap(ctx, Slope());
}

// --- gates ------------------------------------------------------------------

// y = x sigmoid(x) · gate
void SwiGLU(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &gate = Operand(ctx, 1);
  DType dtype = ComputedAs(x);
  CheckOperand(ctx, 1, dtype, x.shape());
  Tensor y = StoredResult(ctx, 0, dtype, x.shape());
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    Map2<T>(ctx, x, gate, y, [](T v, T g) {
      return static_cast<T>(v / (1 + math::QuickExp(-v)) * g);
    });
  });
}

// dx = dy gate s (1 + x (1 - s)), dgate = dy x s with s = sigmoid(x)
void SwiGLUGrad(KernelContext& ctx) {
  const Tensor &dy = Operand(ctx, 0), &x = Operand(ctx, 1);
  const Tensor& gate = Operand(ctx, 2);
  DType dtype = ComputedAs(x);
  CheckOperand(ctx, 0, dtype, x.shape());
  CheckOperand(ctx, 2, dtype, x.shape());
  const Tensor in[] = {dy, x, gate};
  Tensor out[] = {StoredResult(ctx, 0, dtype, x.shape()),
                  StoredResult(ctx, 1, dtype, x.shape())};
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    ForBlocks<T>(ctx, in, out, [](const auto& from, const auto& to, int64_t n) {
      const T *from_dy = from[0], *from_x = from[1], *from_gate = from[2];
      T *to_x = to[0], *to_gate = to[1];
      OnBestIsa([=] {
        ONNX_FP8_IVDEP  // a result is an operand or overlaps none
        for (int64_t i = 0; i < n; ++i) {
          T g = from_dy[i], v = from_x[i], w = from_gate[i];
          SiluParts<T> silu(v);
          to_x[i] = g * w * silu.slope;
          to_gate[i] = g * silu.y;
        }
      });
    });
  });
}

// --- Dropout ----------------------------------------------------------------

void Dropout(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  Tensor mask = Result(ctx, 1, DType::kBool, x.shape());
  double ratio = ctx.HasIn(1) ? NumberIn(ctx, 1) : 0.5;
  bool training = ctx.HasIn(2) && NumberIn(ctx, 2) != 0;
  Check(ratio >= 0 && ratio <= 1, "[", ctx.Where(),
        "] expected a ratio in 0…1, got ", ratio);
  bool* keep = mask.data<bool>();
  if (!training || ratio == 0) {
    CopyBytes(x, y);
    std::fill_n(keep, x.size(), true);
    return;
  }
  uint64_t seed = SeedOf(ctx);
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    auto scale = static_cast<T>(1.0 / (1.0 - ratio));
    const T* in = x.data<T>();
    T* out = y.data<T>();
    ParallelFor(x.size(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        keep[i] = RandomUniform(seed, static_cast<uint64_t>(i)) >= ratio;
        out[i] = keep[i] ? in[i] * scale : T{0};
      }
    });
  });
}

}  // namespace

void RegisterActivation(KernelRegistry& r) {
  const KernelTraits in_place{.in_place = {{0, 0}}};
  const KernelTraits measured = StoredTraits(1), either = StoredTraits(2);
  r.Add("Relu", Widened<Relu>,
        {.in_place = {{0, 0}}, .measures = {0}, .moves = true});
  r.Add("LeakyRelu", Widened<LeakyRelu>, measured);
  r.Add("ThresholdedRelu", Widened<ThresholdedRelu>, measured);
  r.Add("HardSigmoid", Widened<HardSigmoid>, measured);
  r.Add("HardSwish", Widened<HardSwish>, measured);
  r.Add("Shrink", Widened<Shrink>, in_place);
  r.Add("Clip", Widened<Clip>, in_place);
  r.Add("Elu", Widened<Elu>, measured);
  r.Add("Selu", Widened<Selu>, measured);
  r.Add("Celu", Widened<Celu>, measured);
  r.Add("Sigmoid", Widened<Sigmoid>, measured);
  r.Add("Tanh", Widened<Tanh>, measured);
  r.Add("Swish", Widened<Swish>, measured);
  r.Add("Softplus", Widened<Softplus>, measured);
  r.Add("Softsign", Widened<Softsign>, measured);
  r.Add("Mish", Widened<Mish>, measured);
  r.Add("Gelu", Widened<Gelu>, measured);
  r.Add("GeluGrad", Widened<Gradient<GeluSlope>>, either, kDomain);
  r.Add("GeluTanhGrad", Widened<Gradient<GeluTanhSlope>>, either, kDomain);
  r.Add("Silu", Widened<Silu>, measured, kDomain);
  r.Add("SiluGrad", Widened<Gradient<SiluSlope>>, either, kDomain);
  r.Add("GeluBiasGrad", Widened<BiasGradient<GeluSlope>>, either, kDomain);
  r.Add("GeluTanhBiasGrad", Widened<BiasGradient<GeluTanhSlope>>, either,
        kDomain);
  r.Add("SiluBiasGrad", Widened<BiasGradient<SiluSlope>>, either, kDomain);
  r.Add("SwiGLU", Widened<SwiGLU>, either, kDomain);
  r.Add("SwiGLUGrad", Widened<SwiGLUGrad>,
        {.in_place = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}},
         .measures = {0, 1},
         .narrow_in = {0, 1, 2},
         .narrow_out = {0, 1}},
        kDomain);
  r.Add("Dropout", Widened<Dropout>, in_place);
}

}  // namespace onnx_fp8
