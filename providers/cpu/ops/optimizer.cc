// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc: one pass over memory per parameter,
// with operations in the order of the bodies. Parameters and moments that are
// kept in fewer bytes (join_masters.h, join_moments.h) are floats in a buffer
// while they are updated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "graph/moment_shapes.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/fp8/code_writer.h"
#include "providers/cpu/fp8/quantize.h"
#include "providers/cpu/math/master_codec.h"
#include "providers/cpu/math/moment_codec.h"
#include "providers/cpu/math/round_stochastic.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/element_places.h"
#include "providers/ops/update_layout.h"

namespace onnx_fp8 {
namespace {

// The scalar operands, which follow the param-like ones.
struct Scalars {
  int64_t step = 1;
  double rate = 0;  // lr · lr_scale
  double grad_scale = 1;
  bool ok = true;
  // Keys of the draws that round the parameter and the moments.
  uint32_t master_key = 0, key = 0;
};

// The dtypes and shapes that a node's parameter and layout ask for.
struct Wanted {
  DType floats, moment;
  Shape shape, scales;
};

Wanted WantedBy(const KernelContext& ctx, const UpdateLayout& layout) {
  Check(ctx.HasIn(0), "[", ctx.Where(), "] lacks input 0");
  const Tensor& parameter = ctx.In(0);
  Wanted wanted = {.shape = parameter.shape()};
  wanted.floats = layout.halves ? DType::kFloat : parameter.dtype();
  wanted.moment = layout.coded_moments() ? layout.kept : wanted.floats;
  Check(layout.scales() == 0 || parameter.rank() >= 2, "[", ctx.Where(),
        "] expected codes of rank 2 or more");
  if (layout.scales() > 0) wanted.scales = MomentScaleShape(wanted.shape);
  return wanted;
}

bool IsLike(const Tensor& t, DType dtype, const Shape& shape) {
  return t.dtype() == dtype && t.shape() == shape;
}

// Errors: an operand or a result of another number, dtype or shape.
void CheckOperands(KernelContext& ctx, const UpdateLayout& layout) {
  const size_t inputs = layout.inputs(), amax = layout.amax_out();
  Check(ctx.num_inputs() == inputs && ctx.num_outputs() == layout.outputs(),
        "[", ctx.Where(), "] expected ", inputs, " inputs and ",
        layout.outputs(), " outputs");
  const Wanted wanted = WantedBy(ctx, layout);
  auto fits = [&](const Tensor& t, size_t i) {
    if (i >= layout.code_scale_in()) return IsLike(t, DType::kFloat, {});
    if (i >= layout.scales_in()) return IsLike(t, DType::kFloat, wanted.scales);
    if (layout.splits() && i == layout.master()) {
      return IsLike(t, layout.correction, wanted.shape);
    }
    if (i >= layout.tensors()) return t.size() == 1;
    return i == 0 ||
           IsLike(t, i == 1 ? wanted.floats : wanted.moment, wanted.shape);
  };
  for (size_t i = 0; i < inputs; ++i) {
    Check(ctx.HasIn(i), "[", ctx.Where(), "] lacks input ", i);
    const bool tensor =
        i < layout.tensors() || (layout.splits() && i == layout.master());
    Check(fits(ctx.In(i), i), "[", ctx.Where(), "] expected input ", i,
          " of shape ",
          tensor ? ToString(wanted.shape)
          : i >= layout.scales_in() && i < layout.code_scale_in()
              ? ToString(wanted.scales)
              : "[]",
          ", got ", Name(ctx.In(i).dtype()), ToString(ctx.In(i).shape()));
  }
  auto is_result = [&](size_t i) {
    const Tensor& t = ctx.Out(i);
    if (i >= layout.scales_out()) return fits(t, layout.scales_in());
    if (i >= layout.correction_out()) return fits(t, layout.master());
    return IsLike(t, i == 0 ? ctx.In(0).dtype() : wanted.moment, wanted.shape);
  };
  for (size_t i = 0; i < amax; ++i) {
    Check(ctx.HasOut(i) && is_result(i), "[", ctx.Where(), "] expected output ",
          i, " like the parameter");
  }
  const auto code = static_cast<DType>(ctx.Int("to", 0));
  for (size_t i = amax; i < layout.outputs(); ++i) {
    const bool codes = layout.quantizes && i == layout.codes_out();
    const DType dtype = codes ? code : DType::kFloat;
    const Shape shape = codes ? wanted.shape : Shape{};
    Check(ctx.HasOut(i) && IsLike(ctx.Out(i), dtype, shape), "[", ctx.Where(),
          "] expected output ", i, " as a ", Name(dtype), " of rank ",
          shape.size());
  }
}

// Checks all operands and results of a node.
Scalars ReadScalars(KernelContext& ctx, const UpdateLayout& layout) {
  CheckOperands(ctx, layout);
  auto scalar = [&](size_t i, DType dtype) -> const Tensor& {
    Check(ctx.In(i).dtype() == dtype, "[", ctx.Where(), "] expected input ", i,
          " of type ", Name(dtype), ", got ", Name(ctx.In(i).dtype()));
    return ctx.In(i);
  };
  // The key of the draws; operand i is their seed.
  auto key = [&](size_t i, const char* stream) {
    const int64_t seed = scalar(i, DType::kInt64).data<int64_t>()[0];
    const int64_t update = scalar(i + 1, DType::kInt64).data<int64_t>()[0];
    return DrawKey(seed, DrawSettingsOf(ctx, stream).stream, update);
  };
  Scalars s;
  size_t i = layout.tensors();
  if (layout.has_step) s.step = scalar(i++, DType::kInt64).data<int64_t>()[0];
  s.rate = double{scalar(i++, DType::kFloat).data<float>()[0]} *
           double{ctx.Float("lr_scale", 1)};
  s.grad_scale = scalar(i++, DType::kFloat).data<float>()[0];
  s.ok = scalar(i, DType::kBool).data<bool>()[0];
  if (layout.draws_master())
    s.master_key = key(layout.master(), "master_stream");
  if (layout.draws()) s.key = key(layout.seed(), "stream");
  return s;
}

// A tensor of an update: floats in their place or, as the state keeps them,
// codes, which are floats in a buffer while they are updated.
template <typename Codec>
struct Kept {
  const float* in;  // null: codes
  float* out;
  Codec codec;

  // Its old numbers, n from `begin` on.
  const float* Read(int64_t begin, int64_t n, float* buffer) const {
    if (in) return in + begin;
    codec.Decode(begin, n, buffer);
    return buffer;
  }
  // The place of its new numbers, which Write then encodes.
  float* Place(int64_t begin, float* buffer) const {
    return out ? out + begin : buffer;
  }
  void Write(const float* buffer, int64_t begin, int64_t n) const {
    if (!out) codec.Encode(buffer, begin, n);
  }
};

Kept<MasterCodec> ParameterOf(KernelContext& ctx, const UpdateLayout& layout,
                              const Scalars& s) {
  if (!layout.halves) {
    return {ctx.In(0).data<float>(), ctx.Out(0).data<float>(), {}};
  }
  MasterCodec codec = {.correction = layout.correction,
                       .in = static_cast<const uint16_t*>(ctx.In(0).raw()),
                       .out = static_cast<uint16_t*>(ctx.Out(0).raw()),
                       .places = DrawSettingsOf(ctx).places,
                       .key = s.master_key};
  if (layout.splits()) {
    codec.correction_in = ctx.In(layout.master()).raw();
    codec.correction_out = ctx.Out(layout.correction_out()).raw();
  }
  return {nullptr, nullptr, codec};
}

// The parameter as it is after the update.
Kept<MasterCodec> NewNumbers(Kept<MasterCodec> p) {
  p.in = p.out;
  p.codec.in = p.codec.out;
  p.codec.correction_in = p.codec.correction_out;
  return p;
}

// Whole blocks of codes lie in one piece.
MomentBlocks BlocksOf(const KernelContext& ctx, const UpdateLayout& layout) {
  if (layout.scales() > 0) return MomentBlocksOf(ctx.In(0).shape());
  return {1, ctx.In(0).size()};
}

// Moment i. Adam's second one is a mean of squares.
Kept<MomentCodec> MomentOf(KernelContext& ctx, const UpdateLayout& layout,
                           const Scalars& s, size_t i) {
  Kept<MomentCodec> moment = {};
  if (!layout.coded_moments()) {
    moment.in = ctx.In(2 + i).data<float>();
    moment.out = ctx.Out(1 + i).data<float>();
    return moment;
  }
  moment.codec = {.dtype = layout.kept,
                  .is_square = i == 1,
                  .blocks = BlocksOf(ctx, layout),
                  .in = ctx.In(2 + i).raw(),
                  .out = ctx.Out(1 + i).raw()};
  if (layout.scales() > 0) {
    moment.codec.scales_in = ctx.In(layout.scales_in() + i).data<float>();
    moment.codec.scales_out = ctx.Out(layout.scales_out() + i).data<float>();
  }
  moment.codec.places = DrawSettingsOf(ctx).places;
  moment.codec.key = s.key;
  return moment;
}

// A skipped step: outputs are inputs.
void KeepAll(KernelContext& ctx, const UpdateLayout& layout) {
  CopyBytes(ctx.In(0), ctx.Out(0));
  for (size_t i = 0; i < layout.moments; ++i) {
    CopyBytes(ctx.In(2 + i), ctx.Out(1 + i));
  }
  if (layout.splits()) {
    CopyBytes(ctx.In(layout.master()), ctx.Out(layout.correction_out()));
  }
  for (size_t i = 0; i < layout.scales(); ++i) {
    CopyBytes(ctx.In(layout.scales_in() + i), ctx.Out(layout.scales_out() + i));
  }
  if (layout.measured) ctx.Out(layout.amax_out()).data<float>()[0] = 0;
}

// Whether an element is updated. x - x is NaN if x is infinite or NaN.
template <typename T>
bool IsTaken(T grad) {
  return grad - grad == 0;
}

CodeFormat CodeFormatOf(const KernelContext& ctx, const UpdateLayout& layout) {
  const CodeFormat format = {
      .to = static_cast<DType>(ctx.Int("to", 0)),
      .round_to = static_cast<DType>(
          ctx.Int("round_to", static_cast<int64_t>(DType::kFloat))),
      .q_max = ctx.Float("q_max", 0),
      .scale_in = ctx.In(layout.code_scale_in()).data<float>()[0]};
  CheckCodeFormat(ctx);
  Check(format.round_to == DType::kFloat || IsHalf(format.round_to), "[",
        ctx.Where(), "] expected to round to 16 bits, got ",
        Name(format.round_to));
  return format;
}

// Calls update(codes), or keeps all if the step is skipped. `codes`: writes
// codes of the new parameter; null: nobody asks for them.
template <typename Update>
void RunUpdate(KernelContext& ctx, const UpdateLayout& layout, const Scalars& s,
               Update update) {
  if (!layout.quantizes) return s.ok ? update(nullptr) : KeepAll(ctx, layout);
  CodeWriter codes(CodeFormatOf(ctx, layout),
                   ctx.Out(layout.codes_out()).raw());
  const auto p = NewNumbers(ParameterOf(ctx, layout, s));
  auto for_numbers = [&](auto fn) {
    ForMomentPieces(BlocksOf(ctx, layout), [&](int64_t begin, int64_t n) {
      float weights[kMomentPiece];
      fn(p.Read(begin, n, weights), begin, n);
    });
  };
  if (s.ok) {
    update(&codes);
  } else {
    KeepAll(ctx, layout);
    for_numbers([&](const float* x, int64_t begin, int64_t n) {
      codes.Add(x, begin, n);
    });
  }
  if (!codes.knows_scale()) {
    codes.SetOwnScale();
    for_numbers([&](const float* x, int64_t begin, int64_t n) {
      codes.Encode(x, begin, n);
    });
  }
  ctx.Out(layout.codes_out() + 1).data<float>()[0] = codes.scale();
  ctx.Out(layout.codes_out() + 2).data<float>()[0] = codes.amax();
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
void SgdCoded(KernelContext& ctx, const UpdateLayout& layout, const Scalars& s,
              CodeWriter* codes) {
  constexpr bool kKeeps = kMomentum != Momentum::kNone;
  const auto rule = SgdRuleOf<float>(ctx, s);
  const float* dp = ctx.In(1).data<float>();
  const auto p = ParameterOf(ctx, layout, s), after = NewNumbers(p);
  Kept<MomentCodec> b = {};
  if (kKeeps) b = MomentOf(ctx, layout, s, 0);
  ForMomentPieces(BlocksOf(ctx, layout), [=](int64_t begin, int64_t n) {
    float weights[kMomentPiece], buffer[kMomentPiece];
    rule.template Step<kMomentum>(p.Read(begin, n, weights), dp + begin,
                                  kKeeps ? b.Read(begin, n, buffer) : nullptr,
                                  p.Place(begin, weights),
                                  kKeeps ? b.Place(begin, buffer) : nullptr, n);
    p.Write(weights, begin, n);
    if (kKeeps) b.Write(buffer, begin, n);
    if (codes) codes->Add(after.Read(begin, n, weights), begin, n);
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
  const UpdateLayout layout = LayoutOf(ctx, kKeeps, false);
  const Scalars s = ReadScalars(ctx, layout);
  const bool nesterov = ctx.Int("nesterov", 0) != 0;
  RunUpdate(ctx, layout, s, [&](CodeWriter* codes) {
    if (layout.coded() || codes) {
      auto* run = !kKeeps    ? SgdCoded<Momentum::kNone>
                  : nesterov ? SgdCoded<Momentum::kNesterov>
                             : SgdCoded<Momentum::kPlain>;
      return run(ctx, layout, s, codes);
    }
    DispatchFloat(ctx.In(0).dtype(), ctx.Where(), [&]<typename T>() {
      auto* run = !kKeeps    ? SgdStep<T, Momentum::kNone>
                  : nesterov ? SgdStep<T, Momentum::kNesterov>
                             : SgdStep<T, Momentum::kPlain>;
      run(ctx, s);
    });
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
void AdamCoded(KernelContext& ctx, const UpdateLayout& layout, const Scalars& s,
               CodeWriter* codes) {
  const AdamRule<float, kDecoupled> rule(ctx, s);
  const float* dp = ctx.In(1).data<float>();
  const auto p = ParameterOf(ctx, layout, s), after = NewNumbers(p);
  const auto m = MomentOf(ctx, layout, s, 0), v = MomentOf(ctx, layout, s, 1);
  const bool measured = layout.measured;
  UpdateMeter<float> meter(ctx, s.step);
  ForMomentPieces(BlocksOf(ctx, layout), [=, &meter](int64_t begin, int64_t n) {
    float weights[kMomentPiece], means[kMomentPiece], squares[kMomentPiece];
    float* m_out = m.Place(begin, means);
    float* v_out = v.Place(begin, squares);
    rule.Step(p.Read(begin, n, weights), dp + begin, m.Read(begin, n, means),
              v.Read(begin, n, squares), p.Place(begin, weights), m_out, v_out,
              n);
    if (measured) meter.Add(m_out, v_out, n);
    p.Write(weights, begin, n);
    m.Write(means, begin, n);
    v.Write(squares, begin, n);
    if (codes) codes->Add(after.Read(begin, n, weights), begin, n);
  });
  if (measured) ctx.Out(layout.amax_out()).data<float>()[0] = meter.Amax();
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
  const UpdateLayout layout = LayoutOf(ctx, 2, true);
  const Scalars s = ReadScalars(ctx, layout);
  RunUpdate(ctx, layout, s, [&](CodeWriter* codes) {
    if (layout.coded() || codes) {
      return AdamCoded<kDecoupled>(ctx, layout, s, codes);
    }
    DispatchFloat(ctx.In(0).dtype(), ctx.Where(),
                  [&]<typename T>() { AdamStep<T, kDecoupled>(ctx, s); });
  });
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
  const auto update = [](size_t moments, bool has_step) {
    return KernelTraits{.in_place = UpdatesInPlace(moments, has_step),
                        .coded_state = true};
  };
  KernelTraits encode{.in_place = {{1, 0}, {2, 1}}};
  r.Add("SGD", Sgd<false>, update(0, false), kDomain);
  r.Add("SGDMomentum", Sgd<true>, update(1, false), kDomain);
  r.Add("Adam", Adam<false>, update(2, true), kDomain);
  r.Add("AdamW", Adam<true>, update(2, true), kDomain);
  r.Add("UpdateAmax", UpdateAmax, {}, kDomain);
  r.Add("RoundStochastic", RoundStochasticOp, {}, kDomain);
  r.Add("DecodeMoment", DecodeMoment, {}, kDomain);
  r.Add("EncodeMoment", EncodeMoment<false>, encode, kDomain);
  r.Add("EncodeSecondMoment", EncodeMoment<true>, encode, kDomain);
}

}  // namespace onnx_fp8
