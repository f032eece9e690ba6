// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc: one pass over memory per parameter,
// with operations in the order of the bodies. Moments that are kept as bfloat16
// (join_moments.h) are floats in a buffer while an element is updated.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/cpu/math/round_stochastic.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/element_places.h"

namespace onnx_fp8 {
namespace {

// The scalar operands, which follow the param-like ones.
struct Scalars {
  int64_t step = 1;
  double rate = 0;  // lr · lr_scale
  double grad_scale = 1;
  bool ok = true;
  uint32_t key = 0;  // of the draws, if moments are kept as bfloat16
};

bool AreCoded(const KernelContext& ctx, size_t moments) {
  return moments > 0 && ctx.In(2).dtype() == DType::kBFloat16;
}

// Checks all operands and results of a node with `moments` moments.
Scalars ReadScalars(KernelContext& ctx, size_t moments, bool has_step) {
  const bool coded = ctx.HasIn(2) && AreCoded(ctx, moments);
  const bool draws = coded && has_step;
  size_t tensors = 2 + moments;
  size_t inputs = tensors + (has_step ? 4 : 3) + (draws ? 2 : 0);
  Check(ctx.num_inputs() == inputs && ctx.num_outputs() == 1 + moments, "[",
        ctx.Where(), "] expected ", inputs, " inputs and ", 1 + moments,
        " outputs");
  auto like_param = [&](const Tensor& t, bool moment) {
    const DType dtype = ctx.In(0).dtype();
    return t.dtype() == (moment && coded ? DType::kBFloat16 : dtype) &&
           t.shape() == ctx.In(0).shape();
  };
  for (size_t i = 0; i < inputs; ++i) {
    Check(ctx.HasIn(i), "[", ctx.Where(), "] lacks input ", i);
    bool fits =
        i < tensors ? like_param(ctx.In(i), i >= 2) : ctx.In(i).size() == 1;
    Check(fits, "[", ctx.Where(), "] expected input ", i, " of shape ",
          i < tensors ? ToString(ctx.In(0).shape()) : "[]", ", got ",
          Name(ctx.In(i).dtype()), ToString(ctx.In(i).shape()));
  }
  for (size_t i = 0; i <= moments; ++i) {
    Check(ctx.HasOut(i) && like_param(ctx.Out(i), i >= 1), "[", ctx.Where(),
          "] expected output ", i, " like the parameter");
  }
  auto scalar = [&](size_t i, DType dtype) -> const Tensor& {
    Check(ctx.In(i).dtype() == dtype, "[", ctx.Where(), "] expected input ", i,
          " of type ", Name(dtype), ", got ", Name(ctx.In(i).dtype()));
    return ctx.In(i);
  };
  Scalars s;
  size_t i = tensors;
  if (has_step) s.step = scalar(i++, DType::kInt64).data<int64_t>()[0];
  s.rate = double{scalar(i++, DType::kFloat).data<float>()[0]} *
           double{ctx.Float("lr_scale", 1)};
  s.grad_scale = scalar(i++, DType::kFloat).data<float>()[0];
  s.ok = scalar(i++, DType::kBool).data<bool>()[0];
  if (draws) {
    const int64_t seed = scalar(i++, DType::kInt64).data<int64_t>()[0];
    const int64_t update = scalar(i, DType::kInt64).data<int64_t>()[0];
    s.key = DrawKey(seed, DrawSettingsOf(ctx).stream, update);
  }
  return s;
}

// A moment before and after an update.
struct Moment {
  const void* in;
  void* out;
};

Moment MomentOf(KernelContext& ctx, size_t i) {
  return {ctx.In(2 + i).raw(), ctx.Out(1 + i).raw()};
}

constexpr int64_t kBuffered = 512;  // elements that are decoded at a time

// Whether an element is updated. x - x is NaN if x is infinite or NaN.
template <typename T>
bool IsTaken(T grad) {
  return grad - grad == 0;
}

// A skipped step: outputs are inputs. `pairs` as in the kernel's traits.
void KeepAll(KernelContext& ctx,
             std::initializer_list<std::pair<size_t, size_t>> pairs) {
  for (auto [in, out] : pairs) {
    CopyBytes(ctx.In(in), ctx.Out(out));
  }
}

// In the loops below an output may be an input, but only at the same index.
// `omp simd` promises that to the compiler.

enum class Momentum { kNone, kPlain, kNesterov };

template <typename T>
struct SgdRule {
  T decay, momentum, rate, clip;

  template <Momentum kMomentum>
  void Step(const T* p, const T* dp, const T* b, T* p_out, T* b_out,
            int64_t n) const {
    const SgdRule s = *this;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T g = dp[i] * s.clip + s.decay * p[i];
      T direction = g;
      if constexpr (kMomentum != Momentum::kNone) {
        T b1 = s.momentum * b[i] + g;
        direction = kMomentum == Momentum::kNesterov ? g + s.momentum * b1 : b1;
        b_out[i] = IsTaken(dp[i]) ? b1 : b[i];
      }
      p_out[i] = IsTaken(dp[i]) ? p[i] - s.rate * direction : p[i];
    }
  }
};

template <Momentum kMomentum>
void SgdCoded(const SgdRule<float>& rule, const float* p, const float* dp,
              Moment b, float* p_out, int64_t begin, int64_t end) {
  auto* in = static_cast<const uint16_t*>(b.in);
  auto* out = static_cast<uint16_t*>(b.out);
  float buffer[kBuffered];
  for (int64_t i = begin; i < end; i += kBuffered) {
    const int64_t n = std::min(kBuffered, end - i);
    WidenFloats(DType::kBFloat16, in + i, buffer, n);
    rule.Step<kMomentum>(p + i, dp + i, buffer, p_out + i, buffer, n);
    NarrowFloats(DType::kBFloat16, buffer, out + i, n);
  }
}

template <typename T, Momentum kMomentum>
void SgdStep(KernelContext& ctx, const Scalars& s) {
  constexpr bool kKeeps = kMomentum != Momentum::kNone;
  const T* p = ctx.In(0).data<T>();
  const T* dp = ctx.In(1).data<T>();
  T* p_out = ctx.Out(0).data<T>();
  const Moment b = kKeeps ? MomentOf(ctx, 0) : Moment{};
  const bool coded = AreCoded(ctx, kKeeps);
  const SgdRule<T> rule = {ctx.Float("weight_decay", 0),
                           ctx.Float("momentum", 0), static_cast<T>(s.rate),
                           static_cast<T>(s.grad_scale)};
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    if constexpr (kKeeps && std::is_same_v<T, float>) {
      if (coded) {
        return SgdCoded<kMomentum>(rule, p, dp, b, p_out, begin, end);
      }
    }
    auto* in = static_cast<const T*>(b.in);
    auto* out = static_cast<T*>(b.out);
    rule.template Step<kMomentum>(p + begin, dp + begin,
                                  kKeeps ? in + begin : nullptr, p_out + begin,
                                  kKeeps ? out + begin : nullptr, end - begin);
  });
}

template <bool kKeeps>
void Sgd(KernelContext& ctx) {
  Scalars s = ReadScalars(ctx, kKeeps, false);
  if (!s.ok && kKeeps) return KeepAll(ctx, {{0, 0}, {2, 1}});
  if (!s.ok) return KeepAll(ctx, {{0, 0}});
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (!kKeeps) return SgdStep<T, Momentum::kNone>(ctx, s);
    auto* run = ctx.Int("nesterov", 0) != 0 ? SgdStep<T, Momentum::kNesterov>
                                            : SgdStep<T, Momentum::kPlain>;
    run(ctx, s);
  });
}

template <typename T, bool kDecoupled>
struct AdamRule {
  T size, root, keep, decay, new1, new2, beta2, eps, clip;

  AdamRule(const KernelContext& ctx, const Scalars& s) {
    const double one_minus1 = ctx.Float("one_minus_beta1", 0.1f);
    const double one_minus2 = ctx.Float("one_minus_beta2", 0.001f);
    const double pull = ctx.Float("weight_decay", 0);
    const auto t = static_cast<double>(s.step);
    size = static_cast<T>(s.rate / (1 - std::pow(1 - one_minus1, t)));
    root = static_cast<T>(std::sqrt(1 - std::pow(1 - one_minus2, t)));
    keep = static_cast<T>(1 - s.rate * pull);
    decay = static_cast<T>(pull);
    new1 = static_cast<T>(one_minus1);
    new2 = static_cast<T>(one_minus2);
    beta2 = static_cast<T>(1 - one_minus2);
    eps = ctx.Float("eps", 1e-8f);
    clip = static_cast<T>(s.grad_scale);
  }

  void Step(const T* p, const T* dp, const T* m, const T* v, T* p_out, T* m_out,
            T* v_out, int64_t n) const {
    const AdamRule s = *this;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T g = dp[i] * s.clip;
      if (!kDecoupled) g += s.decay * p[i];
      T m1 = m[i] + s.new1 * (g - m[i]);
      T v1 = s.beta2 * v[i] + s.new2 * (g * g);
      T denominator = std::sqrt(v1) / s.root + s.eps;
      T start = kDecoupled ? p[i] * s.keep : p[i];
      bool taken = IsTaken(dp[i]);
      p_out[i] = taken ? start - s.size * (m1 / denominator) : p[i];
      m_out[i] = taken ? m1 : m[i];
      v_out[i] = taken ? v1 : v[i];
    }
  }
};

template <bool kDecoupled>
void AdamCoded(KernelContext& ctx, const Scalars& s) {
  const AdamRule<float, kDecoupled> rule(ctx, s);
  const float* p = ctx.In(0).data<float>();
  const float* dp = ctx.In(1).data<float>();
  float* p_out = ctx.Out(0).data<float>();
  const Moment m = MomentOf(ctx, 0), v = MomentOf(ctx, 1);
  const ElementPlaces places = DrawSettingsOf(ctx).places;
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    float means[kBuffered], squares[kBuffered];
    for (int64_t i = begin; i < end; i += kBuffered) {
      const int64_t n = std::min(kBuffered, end - i);
      auto in = [=](const Moment& x) {
        return static_cast<const uint16_t*>(x.in) + i;
      };
      auto out = [=](const Moment& x) {
        return static_cast<uint16_t*>(x.out) + i;
      };
      WidenFloats(DType::kBFloat16, in(m), means, n);
      WidenFloats(DType::kBFloat16, in(v), squares, n);
      rule.Step(p + i, dp + i, means, squares, p_out + i, means, squares, n);
      NarrowFloats(DType::kBFloat16, means, out(m), n);
      RoundStochastic(squares, out(v), i, n, places, s.key);
    }
  });
}

template <typename T, bool kDecoupled>
void AdamStep(KernelContext& ctx, const Scalars& s) {
  const AdamRule<T, kDecoupled> rule(ctx, s);
  const T* p = ctx.In(0).data<T>();
  const T* dp = ctx.In(1).data<T>();
  const T* m = ctx.In(2).data<T>();
  const T* v = ctx.In(3).data<T>();
  T* p_out = ctx.Out(0).data<T>();
  T* m_out = ctx.Out(1).data<T>();
  T* v_out = ctx.Out(2).data<T>();
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    rule.Step(p + begin, dp + begin, m + begin, v + begin, p_out + begin,
              m_out + begin, v_out + begin, end - begin);
  });
}

template <bool kDecoupled>
void Adam(KernelContext& ctx) {
  Scalars s = ReadScalars(ctx, 2, true);
  if (!s.ok) return KeepAll(ctx, {{0, 0}, {2, 1}, {3, 2}});
  if (AreCoded(ctx, 2)) return AdamCoded<kDecoupled>(ctx, s);
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(),
                [&]<typename T>() { AdamStep<T, kDecoupled>(ctx, s); });
}

// Inputs: x, seed, update.
void RoundStochasticOp(KernelContext& ctx) {
  Check(ctx.num_inputs() == 3 && ctx.In(0).dtype() == DType::kFloat &&
            ctx.In(1).dtype() == DType::kInt64 && ctx.In(1).size() == 1 &&
            ctx.In(2).dtype() == DType::kInt64 && ctx.In(2).size() == 1,
        "[", ctx.Where(), "] expected floats, a seed and an update");
  const DrawSettings settings = DrawSettingsOf(ctx);
  const uint32_t key = DrawKey(ctx.In(1).data<int64_t>()[0], settings.stream,
                               ctx.In(2).data<int64_t>()[0]);
  const float* x = ctx.In(0).data<float>();
  auto* y = static_cast<uint16_t*>(ctx.Out(0).raw());
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    RoundStochastic(x + begin, y + begin, begin, end - begin, settings.places,
                    key);
  });
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  KernelTraits adam{.in_place = {{0, 0}, {2, 1}, {3, 2}},
                    .coded_moments = true};
  r.Add("SGD", Sgd<false>, {.in_place = {{0, 0}}}, kDomain);
  r.Add("SGDMomentum", Sgd<true>,
        {.in_place = {{0, 0}, {2, 1}}, .coded_moments = true}, kDomain);
  r.Add("Adam", Adam<false>, adam, kDomain);
  r.Add("AdamW", Adam<true>, adam, kDomain);
  r.Add("RoundStochastic", RoundStochasticOp, {}, kDomain);
}

}  // namespace onnx_fp8
