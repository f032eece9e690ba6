// SPDX-License-Identifier: Apache-2.0
//
// QuantizeTensor, QuantizeWith, QuantizeAmax, Amax, UpdateScale. The results
// equal the bodies in graph/schemas/quantize.cc bit for bit.
#include "providers/cpu/fp8/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

void CheckQuantize(const KernelContext& ctx) {
  DType dtype = ComputedAs(ctx.In(0));
  Check(dtype == DType::kFloat, "[", ctx.Where(), "] expected float, got ",
        Name(dtype));
  CheckCodeFormat(ctx);
}

void CheckCodeFormat(const KernelContext& ctx) {
  auto to = static_cast<DType>(ctx.Int("to", 0));
  float q_max = ctx.Float("q_max", 0.0f);
  Check(IsFloat8(to) && q_max > 0, "[", ctx.Where(),
        "] expected to = 17 or 19 and q_max > 0, got ", ctx.Int("to", 0),
        " and ", q_max);
}

float QuantizingFactor(float q_max, float amax) {
  double ratio = static_cast<double>(q_max) / std::max(amax, 1e-12f);
  return static_cast<float>(ratio);
}

void SetOwnScale(float q_max, float amax, float* factor, float* scale) {
  *factor = QuantizingFactor(q_max, amax);
  *scale = 1.0f / *factor;
}

float ReportedAmax(const Amax& amax) {
  return amax.non_finite ? std::numeric_limits<float>::infinity() : amax.finite;
}

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// x → q, scale, amax. A scale_in of 0 means: compute the scale from this x.
void Quantize(KernelContext& ctx, float scale_in) {
  const Tensor& x = ctx.In(0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  float q_max = ctx.Float("q_max", 0.0f);
  CheckQuantize(ctx);
  StoredFloats from = {x.dtype(), x.raw(), x.size()};
  void* q = ctx.HasOut(0) ? ctx.Out(0, to, x.shape()).raw() : nullptr;
  float factor = 1.0f / scale_in;
  float scale = scale_in;
  const Amax* known = KnownAmax(ctx);
  Amax amax;
  if (scale_in != 0 && q && !known) {
    amax = EncodeAndMeasure(to, from, factor, q);
  } else {
    amax = known ? *known : AmaxOf(from);
    if (scale_in == 0) SetOwnScale(q_max, amax.finite, &factor, &scale);
    if (q) EncodeTo(to, from, factor, q);
  }
  SetResult(ctx, 1, Tensor::Scalar(scale));
  SetResult(ctx, 2, Tensor::Scalar(ReportedAmax(amax)));
}

void QuantizeTensor(KernelContext& ctx) { Quantize(ctx, 0.0f); }

void QuantizeWith(KernelContext& ctx) {
  const Tensor& scale = ctx.In(1);
  Check(scale.dtype() == DType::kFloat && scale.size() == 1, "[", ctx.Where(),
        "] expected one float as scale, got ", Name(scale.dtype()),
        ToString(scale.shape()));
  Quantize(ctx, *scale.data<float>());
}

void QuantizeAmax(KernelContext& ctx) {
  CheckQuantize(ctx);
  for (size_t i : {1, 2}) {
    const Tensor& t = ctx.In(i);
    Check(t.dtype() == DType::kFloat && t.size() == 1, "[", ctx.Where(),
          "] expected one float as operand ", i, ", got ", Name(t.dtype()),
          ToString(t.shape()));
  }
  const Tensor& x = ctx.In(0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  const float amax = *ctx.In(1).data<float>();
  float scale = *ctx.In(2).data<float>();
  float factor = 1.0f / scale;
  if (scale == 0) {
    SetOwnScale(ctx.Float("q_max", 0.0f), amax, &factor, &scale);
  }
  if (ctx.HasOut(0)) {
    EncodeTo(to, {x.dtype(), x.raw(), x.size()}, factor,
             ctx.Out(0, to, x.shape()).raw());
  }
  SetResult(ctx, 1, Tensor::Scalar(scale));
}

void MeasureAmax(KernelContext& ctx) {
  const Tensor& x = ctx.In(0);
  Check(ComputedAs(x) == DType::kFloat, "[", ctx.Where(),
        "] expected float, got ", Name(ComputedAs(x)));
  const Amax* known = KnownAmax(ctx);
  SetResult(ctx, 0,
            Tensor::Scalar(ReportedAmax(
                known ? *known : AmaxOf({x.dtype(), x.raw(), x.size()}))));
}

struct DelayedRule {
  bool most_recent = false;
  float two_to_margin = 1.0f;
};

// Slot i of n: `amax` enters its column of history (H,N); row 0 of the column
// is cleared after it was counted (TransformerEngine's kernel_bulk). The new
// scale is float(1 / float(q_max / m)) · 2^margin, at least 2^-126, where m is
// the largest of the H values or, with most_recent, amax. The scale stays if m
// is not finite.
void UpdateSlot(const DelayedRule& rule, int64_t i, int64_t n, int64_t h,
                float amax, float q_max, float* history, float* scale) {
  if (!(amax > 0 && amax < kInfinity)) return;
  float m = amax;
  for (int64_t j = 0; j < h; ++j) {
    float x = j < h - 1 ? history[(j + 1) * n + i] : amax;
    m = std::max(m, std::isnan(x) ? kInfinity : x);
    history[j * n + i] = j > 0 ? x : 0.0f;
  }
  if (rule.most_recent) m = amax;
  if (!(m < kInfinity)) return;
  auto factor = static_cast<float>(static_cast<double>(q_max) / m);
  *scale = std::max(1.0f / factor * rule.two_to_margin, 0x1p-126f);
}

void UpdateScale(KernelContext& ctx) {
  const Tensor &amax = ctx.In(0), &history = ctx.In(1), &scale = ctx.In(2);
  const Tensor &q_max = ctx.In(3), &ok = ctx.In(4);
  for (size_t i = 0; i < 4; ++i) {
    Check(ctx.In(i).dtype() == DType::kFloat, "[", ctx.Where(),
          "] expected float, got ", Name(ctx.In(i).dtype()));
  }
  int64_t n = amax.size();
  Check(amax.rank() == 1 && scale.shape() == amax.shape() &&
            q_max.shape() == amax.shape() && history.rank() == 2 &&
            history.dim(1) == n && history.dim(0) > 0,
        "[", ctx.Where(), "] expected amax [N], history [H,N], scale [N], ",
        "q_max [N] with H > 0, got ", ToString(amax.shape()),
        ToString(history.shape()), ToString(scale.shape()),
        ToString(q_max.shape()));
  Check(ok.dtype() == DType::kBool && ok.size() == 1, "[", ctx.Where(),
        "] expected one bool, got ", Name(ok.dtype()), ToString(ok.shape()));
  float margin = ctx.Float("margin", 0.0f);
  Check(std::fabs(margin) <= 100 && margin == std::floor(margin), "[",
        ctx.Where(), "] expected a whole margin from -100 to 100, got ",
        margin);
  DelayedRule rule = {ctx.Int("most_recent", 0) != 0, std::exp2(margin)};
  // Copy first: the results may lie in the operands' memory, or be unread.
  Tensor new_history = Result(ctx, 0, DType::kFloat, history.shape());
  Tensor new_scale = Result(ctx, 1, DType::kFloat, scale.shape());
  if (n == 0) return;
  CopyBytes(history, new_history);
  CopyBytes(scale, new_scale);
  if (!*ok.data<bool>()) return;
  ParallelFor(n, RowsPerTask(history.dim(0)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      UpdateSlot(rule, i, n, history.dim(0), amax.data<float>()[i],
                 q_max.data<float>()[i], new_history.data<float>(),
                 new_scale.data<float>() + i);
    }
  });
}

}  // namespace

void RegisterQuantize(KernelRegistry& r) {
  const KernelTraits traits{.uses_amax = true, .narrow_in = {0}};
  r.Add("QuantizeTensor", QuantizeTensor, traits, kDomain);
  r.Add("QuantizeWith", QuantizeWith, traits, kDomain);
  r.Add("QuantizeAmax", QuantizeAmax, {.narrow_in = {0}}, kDomain);
  r.Add("Amax", MeasureAmax, traits, kDomain);
  r.Add("UpdateScale", UpdateScale, {.in_place = {{1, 0}, {2, 1}}}, kDomain);
}

}  // namespace onnx_fp8
