// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc: one pass over memory per parameter,
// with operations in the order of the bodies. Moments that are kept as bfloat16
// or as codes (join_moments.h) are floats in a buffer while they are updated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>

#include "graph/moment_shapes.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/moment_codec.h"
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
  uint32_t key = 0;  // of the draws, if moments are no floats
};

// Operands and results of an update with `moments` moments. The operands of the
// body come first: parameter, gradient, moments, [step], lr, grad_scale, ok. An
// update whose moments are bfloat16 or codes has more (join_moments.h).
struct Layout {
  size_t moments;
  bool has_step;
  DType kept;             // of the moments
  bool measured = false;  // the last result is UpdateAmax's

  size_t tensors() const { return 2 + moments; }
  size_t seed() const { return tensors() + (has_step ? 4 : 3); }
  bool coded() const { return IsHalf(kept) || IsFloat8(kept); }
  bool draws() const { return coded() && has_step; }
  // The first operand and result with scales.
  size_t scales_in() const { return seed() + (draws() ? 2 : 0); }
  size_t scales_out() const { return 1 + moments; }
  size_t scales() const { return IsFloat8(kept) ? moments : 0; }
  size_t amax_out() const { return scales_out() + scales(); }
};

Layout LayoutOf(const KernelContext& ctx, size_t moments, bool has_step) {
  Layout layout{moments, has_step, DType::kUndefined};
  if (moments > 0 && ctx.HasIn(2)) {
    const DType dtype = ctx.In(2).dtype();
    if (dtype == DType::kBFloat16 || dtype == DType::kE4M3) layout.kept = dtype;
  }
  layout.measured =
      layout.draws() && ctx.num_outputs() == layout.amax_out() + 1;
  return layout;
}

// Errors: an operand or a result of another number, dtype or shape.
void CheckOperands(KernelContext& ctx, const Layout& layout) {
  const size_t inputs = layout.scales_in() + layout.scales();
  const size_t outputs = layout.amax_out();
  Check(ctx.num_inputs() == inputs &&
            ctx.num_outputs() == outputs + (layout.measured ? 1 : 0),
        "[", ctx.Where(), "] expected ", inputs, " inputs and ", outputs,
        " outputs");
  for (size_t i = 0; i < inputs; ++i) {
    Check(ctx.HasIn(i), "[", ctx.Where(), "] lacks input ", i);
  }
  const Shape& shape = ctx.In(0).shape();
  Check(layout.scales() == 0 || shape.size() >= 2, "[", ctx.Where(),
        "] expected codes of rank 2 or more");
  const Shape scales = layout.scales() > 0 ? MomentScaleShape(shape) : Shape{};
  auto fits = [&](const Tensor& t, bool moment, bool scale) {
    if (scale) return t.dtype() == DType::kFloat && t.shape() == scales;
    const DType dtype =
        moment && layout.coded() ? layout.kept : ctx.In(0).dtype();
    return t.dtype() == dtype && t.shape() == shape;
  };
  for (size_t i = 0; i < inputs; ++i) {
    const bool tensor = i < layout.tensors(), scale = i >= layout.scales_in();
    const bool good = tensor || scale ? fits(ctx.In(i), i >= 2, scale)
                                      : ctx.In(i).size() == 1;
    Check(good, "[", ctx.Where(), "] expected input ", i, " of shape ",
          tensor  ? ToString(shape)
          : scale ? ToString(scales)
                  : "[]",
          ", got ", Name(ctx.In(i).dtype()), ToString(ctx.In(i).shape()));
  }
  for (size_t i = 0; i < outputs; ++i) {
    Check(ctx.HasOut(i) && fits(ctx.Out(i), i >= 1, i >= layout.scales_out()),
          "[", ctx.Where(), "] expected output ", i, " like the parameter");
  }
  if (!layout.measured) return;
  Check(ctx.HasOut(outputs) && ctx.Out(outputs).dtype() == DType::kFloat &&
            ctx.Out(outputs).rank() == 0,
        "[", ctx.Where(), "] expected output ", outputs,
        " as a float of rank 0");
}

// Checks all operands and results of a node.
Scalars ReadScalars(KernelContext& ctx, const Layout& layout) {
  CheckOperands(ctx, layout);
  auto scalar = [&](size_t i, DType dtype) -> const Tensor& {
    Check(ctx.In(i).dtype() == dtype, "[", ctx.Where(), "] expected input ", i,
          " of type ", Name(dtype), ", got ", Name(ctx.In(i).dtype()));
    return ctx.In(i);
  };
  Scalars s;
  size_t i = layout.tensors();
  if (layout.has_step) s.step = scalar(i++, DType::kInt64).data<int64_t>()[0];
  s.rate = double{scalar(i++, DType::kFloat).data<float>()[0]} *
           double{ctx.Float("lr_scale", 1)};
  s.grad_scale = scalar(i++, DType::kFloat).data<float>()[0];
  s.ok = scalar(i++, DType::kBool).data<bool>()[0];
  if (layout.draws()) {
    const int64_t seed = scalar(i++, DType::kInt64).data<int64_t>()[0];
    const int64_t update = scalar(i, DType::kInt64).data<int64_t>()[0];
    s.key = DrawKey(seed, DrawSettingsOf(ctx).stream, update);
  }
  return s;
}

// Moment i of an update whose moments are no floats. Adam's second one is a
// mean of squares.
MomentCodec CodecOf(KernelContext& ctx, const Layout& layout, const Scalars& s,
                    size_t i) {
  MomentCodec codec = {.dtype = layout.kept,
                       .is_square = i == 1,
                       .blocks = {1, ctx.In(0).size()},
                       .in = ctx.In(2 + i).raw(),
                       .out = ctx.Out(1 + i).raw()};
  if (layout.scales() > 0) {
    codec.blocks = MomentBlocksOf(ctx.In(0).shape());
    codec.scales_in = ctx.In(layout.scales_in() + i).data<float>();
    codec.scales_out = ctx.Out(layout.scales_out() + i).data<float>();
  }
  codec.places = DrawSettingsOf(ctx).places;
  codec.key = s.key;
  return codec;
}

// Whether an element is updated. x - x is NaN if x is infinite or NaN.
template <typename T>
bool IsTaken(T grad) {
  return grad - grad == 0;
}

// A skipped step: outputs are inputs.
void KeepAll(KernelContext& ctx, const Layout& layout) {
  CopyBytes(ctx.In(0), ctx.Out(0));
  for (size_t i = 0; i < layout.moments; ++i) {
    CopyBytes(ctx.In(2 + i), ctx.Out(1 + i));
  }
  for (size_t i = 0; i < layout.scales(); ++i) {
    CopyBytes(ctx.In(layout.scales_in() + i), ctx.Out(layout.scales_out() + i));
  }
  if (layout.measured) ctx.Out(layout.amax_out()).data<float>()[0] = 0;
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

template <typename T>
SgdRule<T> SgdRuleOf(const KernelContext& ctx, const Scalars& s) {
  return {ctx.Float("weight_decay", 0), ctx.Float("momentum", 0),
          static_cast<T>(s.rate), static_cast<T>(s.grad_scale)};
}

template <Momentum kMomentum>
void SgdCoded(KernelContext& ctx, const Layout& layout, const Scalars& s) {
  const auto rule = SgdRuleOf<float>(ctx, s);
  const float* p = ctx.In(0).data<float>();
  const float* dp = ctx.In(1).data<float>();
  float* p_out = ctx.Out(0).data<float>();
  const MomentCodec b = CodecOf(ctx, layout, s, 0);
  ForMomentPieces(b.blocks, [=](int64_t begin, int64_t n) {
    float buffer[kMomentPiece];
    b.Decode(begin, n, buffer);
    rule.template Step<kMomentum>(p + begin, dp + begin, buffer, p_out + begin,
                                  buffer, n);
    b.Encode(buffer, begin, n);
  });
}

template <typename T, Momentum kMomentum>
void SgdStep(KernelContext& ctx, const Scalars& s) {
  constexpr bool kKeeps = kMomentum != Momentum::kNone;
  const T* p = ctx.In(0).data<T>();
  const T* dp = ctx.In(1).data<T>();
  T* p_out = ctx.Out(0).data<T>();
  const T* b = kKeeps ? ctx.In(2).data<T>() : nullptr;
  T* b_out = kKeeps ? ctx.Out(1).data<T>() : nullptr;
  const auto rule = SgdRuleOf<T>(ctx, s);
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    rule.template Step<kMomentum>(
        p + begin, dp + begin, kKeeps ? b + begin : nullptr, p_out + begin,
        kKeeps ? b_out + begin : nullptr, end - begin);
  });
}

template <bool kKeeps>
void Sgd(KernelContext& ctx) {
  const Layout layout = LayoutOf(ctx, kKeeps, false);
  const Scalars s = ReadScalars(ctx, layout);
  if (!s.ok) return KeepAll(ctx, layout);
  const bool nesterov = ctx.Int("nesterov", 0) != 0;
  if (layout.coded()) {
    return nesterov ? SgdCoded<Momentum::kNesterov>(ctx, layout, s)
                    : SgdCoded<Momentum::kPlain>(ctx, layout, s);
  }
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (!kKeeps) return SgdStep<T, Momentum::kNone>(ctx, s);
    auto* run = nesterov ? SgdStep<T, Momentum::kNesterov>
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

// UpdateAmax by the pieces of two moments, which threads add in any order.
template <typename T>
class UpdateMeter {
 public:
  UpdateMeter(const KernelContext& ctx, int64_t step) {
    const double one_minus1 = ctx.Float("one_minus_beta1", 0.1f);
    const double one_minus2 = ctx.Float("one_minus_beta2", 0.001f);
    const auto t = static_cast<double>(step);
    correction_ = 1 - std::pow(1 - one_minus1, t);
    root_ = static_cast<T>(std::sqrt(1 - std::pow(1 - one_minus2, t)));
    eps_ = ctx.Float("eps", 1e-8f);
  }

  void Add(const T* m, const T* v, int64_t n) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const T root = root_, eps = eps_;
    T largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; ++i) {
      T size = std::fabs(m[i] / (std::sqrt(v[i]) / root + eps));
      size = size == size ? size : kInfinity;
      largest = size > largest ? size : largest;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    largest_ = std::max(largest_, largest);
  }

  float Amax() const {
    return static_cast<float>(static_cast<double>(largest_) / correction_);
  }

 private:
  double correction_;
  T root_, eps_, largest_ = 0;
  std::mutex mutex_;
};

template <bool kDecoupled>
void AdamCoded(KernelContext& ctx, const Layout& layout, const Scalars& s) {
  const AdamRule<float, kDecoupled> rule(ctx, s);
  const float* p = ctx.In(0).data<float>();
  const float* dp = ctx.In(1).data<float>();
  float* p_out = ctx.Out(0).data<float>();
  const MomentCodec m = CodecOf(ctx, layout, s, 0);
  const MomentCodec v = CodecOf(ctx, layout, s, 1);
  UpdateMeter<float> meter(ctx, s.step);
  ForMomentPieces(m.blocks, [=, &meter](int64_t begin, int64_t n) {
    float means[kMomentPiece], squares[kMomentPiece];
    m.Decode(begin, n, means);
    v.Decode(begin, n, squares);
    rule.Step(p + begin, dp + begin, means, squares, p_out + begin, means,
              squares, n);
    if (layout.measured) meter.Add(means, squares, n);
    m.Encode(means, begin, n);
    v.Encode(squares, begin, n);
  });
  if (layout.measured) {
    ctx.Out(layout.amax_out()).data<float>()[0] = meter.Amax();
  }
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
  const Layout layout = LayoutOf(ctx, 2, true);
  const Scalars s = ReadScalars(ctx, layout);
  if (!s.ok) return KeepAll(ctx, layout);
  if (layout.coded()) return AdamCoded<kDecoupled>(ctx, layout, s);
  DispatchFloat(ctx.In(0).dtype(), ctx.Where(),
                [&]<typename T>() { AdamStep<T, kDecoupled>(ctx, s); });
}

// Inputs: two moments, step.
void UpdateAmax(KernelContext& ctx) {
  const Tensor& means = Operand(ctx, 0);
  CheckOperand(ctx, 1, means.dtype(), means.shape());
  CheckOperand(ctx, 2, DType::kInt64, {});
  float* amax = ctx.Out(0, DType::kFloat, {}).data<float>();
  DispatchFloat(means.dtype(), ctx.Where(), [&]<typename T>() {
    UpdateMeter<T> meter(ctx, ctx.In(2).data<int64_t>()[0]);
    const T* m = means.data<T>();
    const T* v = ctx.In(1).data<T>();
    ParallelFor(means.size(), kGrain, [=, &meter](int64_t begin, int64_t end) {
      meter.Add(m + begin, v + begin, end - begin);
    });
    *amax = meter.Amax();
  });
}

// Inputs: x, seed, update.
void RoundStochasticOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  CheckOperand(ctx, 0, DType::kFloat, shape);
  for (size_t i : {1, 2}) CheckOperand(ctx, i, DType::kInt64, {});
  const DrawSettings settings = DrawSettingsOf(ctx);
  const uint32_t key = DrawKey(ctx.In(1).data<int64_t>()[0], settings.stream,
                               ctx.In(2).data<int64_t>()[0]);
  const float* x = ctx.In(0).data<float>();
  auto* y = static_cast<uint16_t*>(ctx.Out(0, DType::kBFloat16, shape).raw());
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    RoundStochastic(x + begin, y + begin, begin, end - begin, settings.places,
                    key);
  });
}

// Operands `codes` and `codes` + 1. Errors: no codes with their scales.
MomentCodec CodesIn(const KernelContext& ctx, size_t codes) {
  const Tensor& q = Operand(ctx, codes);
  const Tensor& scales = Operand(ctx, codes + 1);
  Check(q.dtype() == DType::kE4M3 && q.rank() >= 2 &&
            scales.dtype() == DType::kFloat &&
            scales.shape() == MomentScaleShape(q.shape()),
        "[", ctx.Where(),
        "] expected codes and a float for each block of them");
  return {.dtype = q.dtype(),
          .is_square = false,
          .blocks = MomentBlocksOf(q.shape()),
          .in = q.raw(),
          .out = nullptr,
          .scales_in = scales.data<float>()};
}

// Inputs: codes, scale.
void DecodeMoment(KernelContext& ctx) {
  MomentCodec codec = CodesIn(ctx, 0);
  codec.is_square = ctx.Int("squared", 0) != 0;
  float* x = ctx.Out(0, DType::kFloat, ctx.In(0).shape()).data<float>();
  ForMomentPieces(codec.blocks, [=](int64_t begin, int64_t n) {
    codec.Decode(begin, n, x + begin);
  });
}

// Inputs: x, codes, scale, ok, and for a mean of squares seed, update.
template <bool kSquare>
void EncodeMoment(KernelContext& ctx) {
  MomentCodec codec = CodesIn(ctx, 1);
  CheckOperand(ctx, 0, DType::kFloat, ctx.In(1).shape());
  CheckOperand(ctx, 3, DType::kBool, {});
  Tensor* out[2];
  for (size_t i : {0, 1}) {
    const Tensor& old = ctx.In(1 + i);
    out[i] = &ctx.Out(i, old.dtype(), old.shape());
  }
  if (!ctx.In(3).data<bool>()[0]) {
    for (size_t i : {0, 1}) CopyBytes(ctx.In(1 + i), *out[i]);
    return;
  }
  codec.is_square = kSquare;
  codec.out = out[0]->raw();
  codec.scales_out = out[1]->data<float>();
  if (kSquare) {
    for (size_t i : {4, 5}) CheckOperand(ctx, i, DType::kInt64, {});
    const DrawSettings draws = DrawSettingsOf(ctx);
    codec.places = draws.places;
    codec.key = DrawKey(ctx.In(4).data<int64_t>()[0], draws.stream,
                        ctx.In(5).data<int64_t>()[0]);
  }
  const float* x = ctx.In(0).data<float>();
  ForMomentPieces(codec.blocks, [=](int64_t begin, int64_t n) {
    codec.Encode(x + begin, begin, n);
  });
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  // Scales, if there are any, are the last operands and results.
  KernelTraits adam{.in_place = {{0, 0}, {2, 1}, {3, 2}, {10, 3}, {11, 4}},
                    .coded_moments = true};
  KernelTraits momentum{.in_place = {{0, 0}, {2, 1}, {6, 2}},
                        .coded_moments = true};
  KernelTraits encode{.in_place = {{1, 0}, {2, 1}}};
  r.Add("SGD", Sgd<false>, {.in_place = {{0, 0}}}, kDomain);
  r.Add("SGDMomentum", Sgd<true>, momentum, kDomain);
  r.Add("Adam", Adam<false>, adam, kDomain);
  r.Add("AdamW", Adam<true>, adam, kDomain);
  r.Add("UpdateAmax", UpdateAmax, {}, kDomain);
  r.Add("RoundStochastic", RoundStochasticOp, {}, kDomain);
  r.Add("DecodeMoment", DecodeMoment, {}, kDomain);
  r.Add("EncodeMoment", EncodeMoment<false>, encode, kDomain);
  r.Add("EncodeSecondMoment", EncodeMoment<true>, encode, kDomain);
}

}  // namespace onnx_fp8
