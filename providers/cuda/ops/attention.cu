// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops: their checks. The passes themselves, and their traffic,
// are in providers/cuda/attention/. A library computes what it can, our own
// kernels the rest. Sums are of floats. Before they are multiplied,
// probabilities and gradients of scores are rounded to `round_to`.
// q, k, v and dy are exact in it; if they are not, they are rounded to bfloat16
// too, as the CPU's products of bfloat16 do.
#include "providers/arguments.h"
#include "providers/attention_sizes.h"
#include "providers/cuda/attention/backward.h"
#include "providers/cuda/attention/by_library.h"
#include "providers/cuda/attention/forward.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

// Errors: q is no float, or one that is kept in 64 bits.
void CheckFloat(const KernelContext& ctx, const Tensor& q) {
  Check(q.dtype() == DType::kFloat || IsHalf(q.dtype()), "[", ctx.Where(),
        "] expected operands of float, got ", Name(q.dtype()));
}

void Forward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  CheckFloat(ctx, ctx.In(0));
  if (!ForwardByLibrary(ctx, z, in)) AttentionForward(ctx, z, in);
}

void Backward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  CheckFloat(ctx, ctx.In(1));
  size_t last = in.y();
  CheckOperand(ctx, 0, DType::kFloat, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last, DType::kFloat, {z.b, z.t, z.heads * z.e});
  CheckOperand(ctx, last + 1, DType::kFloat, {z.b, z.heads, z.t});
  if (!BackwardByLibrary(ctx, z, in)) AttentionBackward(ctx, z, in);
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

}  // namespace onnx_fp8::cuda
