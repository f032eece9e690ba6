// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops: the choice of operands for their products. The passes
// themselves are in providers/cpu/attention/.
#include <cstring>

#include "providers/arguments.h"
#include "providers/cpu/amax_meter.h"
#include "providers/cpu/attention/backward.h"
#include "providers/cpu/attention/forward.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/register.h"
#include "providers/cpu/stored.h"

namespace onnx_fp8 {
namespace {

// Calls run<E>() for the elements E that the node's products read: bfloat16
// where the machine multiplies it.
template <typename Run>
void DispatchOperands(const KernelContext& ctx, DType dtype,
                      const AttentionSizes& z, const Run& run) {
  if (dtype == DType::kDouble) return run.template operator()<double>();
  Check(dtype == DType::kFloat, "[", ctx.Where(),
        "] expected operands of a float dtype, got ", Name(dtype));
  if (z.round_to == DType::kBFloat16 &&
      Bf16Kernels().a_layout != PanelLayout::kFloat) {
    run.template operator()<KeptBFloat16>();
  } else {
    run.template operator()<float>();
  }
}

void Forward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  DispatchOperands(ctx, ComputedAs(ctx.In(0)), z,
                   [&]<typename E>() { AttentionForward<E>(ctx, z, in); });
}

void Backward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  DType dtype = ComputedAs(ctx.In(1));
  size_t last = in.y();
  CheckOperand(ctx, 0, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last, dtype, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last + 1, dtype, {z.b, z.heads, z.t});
  if (z.s == 0 || z.t == 0) {
    for (size_t i = 0; i < (in.has_relative ? 4u : 3u); ++i) {
      AmaxMeter meter(ctx, i);
      if (!ctx.HasOut(i)) continue;
      Tensor x = StoredResult(ctx, i, dtype, ctx.In(i + 1).shape());
      std::memset(x.raw(), 0, x.bytes());
    }
    return;
  }
  DispatchOperands(ctx, dtype, z,
                   [&]<typename E>() { AttentionBackward<E>(ctx, z, in); });
}

void Attention(KernelContext& ctx) { Forward(ctx, {}); }
void AttentionBias(KernelContext& ctx) { Forward(ctx, {.has_bias = true}); }
void AttentionRelative(KernelContext& ctx) {
  Forward(ctx, {.has_relative = true, .has_bias = true});
}
void AttentionGrad(KernelContext& ctx) { Backward(ctx, {.first = 1}); }
void AttentionBiasGrad(KernelContext& ctx) {
  Backward(ctx, {.first = 1, .has_bias = true});
}
void AttentionRelativeGrad(KernelContext& ctx) {
  Backward(ctx, {.first = 1, .has_relative = true, .has_bias = true});
}

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
  r.Add("AttentionRelative", AttentionRelative, forward, kDomain);
  backward.narrow_in = {0, 1, 2, 3, 6};
  r.Add("AttentionRelativeGrad", AttentionRelativeGrad, backward, kDomain);
}

}  // namespace onnx_fp8
