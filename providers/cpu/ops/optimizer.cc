// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc: one pass over memory per parameter,
// with operations in the order of the bodies.
#include <cmath>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// The scalar operands, which follow the param-like ones.
struct Scalars {
  int64_t step = 1;
  double rate = 0;  // lr · lr_scale
  double grad_scale = 1;
  bool ok = true;
};

// Checks all operands and results of a node with `moments` moments.
Scalars ReadScalars(KernelContext& ctx, size_t moments, bool has_step) {
  size_t tensors = 2 + moments;
  size_t inputs = tensors + (has_step ? 4 : 3);
  Check(ctx.num_inputs() == inputs && ctx.num_outputs() == 1 + moments, "[",
        ctx.Where(), "] expected ", inputs, " inputs and ", 1 + moments,
        " outputs");
  auto like_param = [&](const Tensor& t) {
    return t.dtype() == ctx.In(0).dtype() && t.shape() == ctx.In(0).shape();
  };
  for (size_t i = 0; i < inputs; ++i) {
    Check(ctx.HasIn(i), "[", ctx.Where(), "] lacks input ", i);
    bool fits = i < tensors ? like_param(ctx.In(i)) : ctx.In(i).size() == 1;
    Check(fits, "[", ctx.Where(), "] expected input ", i, " of shape ",
          i < tensors ? ToString(ctx.In(0).shape()) : "[]", ", got ",
          Name(ctx.In(i).dtype()), ToString(ctx.In(i).shape()));
  }
  for (size_t i = 0; i <= moments; ++i) {
    Check(ctx.HasOut(i) && like_param(ctx.Out(i)), "[", ctx.Where(),
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
  s.ok = scalar(i, DType::kBool).data<bool>()[0];
  return s;
}

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

template <typename T, Momentum kMomentum>
void SgdStep(KernelContext& ctx, const Scalars& s) {
  constexpr bool kKeeps = kMomentum != Momentum::kNone;
  const T* p = ctx.In(0).data<T>();
  const T* dp = ctx.In(1).data<T>();
  const T* b = kKeeps ? ctx.In(2).data<T>() : nullptr;
  T* p_out = ctx.Out(0).data<T>();
  T* b_out = kKeeps ? ctx.Out(1).data<T>() : nullptr;
  T decay = ctx.Float("weight_decay", 0);
  T momentum = ctx.Float("momentum", 0);
  T rate = static_cast<T>(s.rate);
  T clip = static_cast<T>(s.grad_scale);
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      T g = dp[i] * clip + decay * p[i];
      T direction = g;
      if constexpr (kKeeps) {
        T b1 = momentum * b[i] + g;
        direction = kMomentum == Momentum::kNesterov ? g + momentum * b1 : b1;
        b_out[i] = IsTaken(dp[i]) ? b1 : b[i];
      }
      p_out[i] = IsTaken(dp[i]) ? p[i] - rate * direction : p[i];
    }
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
void AdamStep(KernelContext& ctx, const Scalars& s) {
  const T* p = ctx.In(0).data<T>();
  const T* dp = ctx.In(1).data<T>();
  const T* m = ctx.In(2).data<T>();
  const T* v = ctx.In(3).data<T>();
  T* p_out = ctx.Out(0).data<T>();
  T* m_out = ctx.Out(1).data<T>();
  T* v_out = ctx.Out(2).data<T>();
  double new1 = ctx.Float("one_minus_beta1", 0.1f);
  double new2 = ctx.Float("one_minus_beta2", 0.001f);
  double decay = ctx.Float("weight_decay", 0);
  double t = static_cast<double>(s.step);
  T size = static_cast<T>(s.rate / (1 - std::pow(1 - new1, t)));
  T root = static_cast<T>(std::sqrt(1 - std::pow(1 - new2, t)));
  T keep = static_cast<T>(1 - s.rate * decay);
  T decay_t = static_cast<T>(decay);
  T new1_t = static_cast<T>(new1);
  T new2_t = static_cast<T>(new2);
  T beta2 = static_cast<T>(1 - new2);
  T eps = ctx.Float("eps", 1e-8f);
  T clip = static_cast<T>(s.grad_scale);
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      T g = dp[i] * clip;
      if (!kDecoupled) g += decay_t * p[i];
      T m1 = m[i] + new1_t * (g - m[i]);
      T v1 = beta2 * v[i] + new2_t * (g * g);
      T denominator = std::sqrt(v1) / root + eps;
      T start = kDecoupled ? p[i] * keep : p[i];
      bool taken = IsTaken(dp[i]);
      p_out[i] = taken ? start - size * (m1 / denominator) : p[i];
      m_out[i] = taken ? m1 : m[i];
      v_out[i] = taken ? v1 : v[i];
    }
  });
}

template <bool kDecoupled>
void Adam(KernelContext& ctx) {
  Scalars s = ReadScalars(ctx, 2, true);
  if (!s.ok) return KeepAll(ctx, {{0, 0}, {2, 1}, {3, 2}});
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(),
                [&]<typename T>() { AdamStep<T, kDecoupled>(ctx, s); });
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  KernelTraits adam{.in_place = {{0, 0}, {2, 1}, {3, 2}}};
  r.Add("SGD", Sgd<false>, {.in_place = {{0, 0}}}, kDomain);
  r.Add("SGDMomentum", Sgd<true>, {.in_place = {{0, 0}, {2, 1}}}, kDomain);
  r.Add("Adam", Adam<false>, adam, kDomain);
  r.Add("AdamW", Adam<true>, adam, kDomain);
}

}  // namespace onnx_fp8
