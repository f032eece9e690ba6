// SPDX-License-Identifier: Apache-2.0
#include "providers/attention_sizes.h"

#include "providers/arguments.h"
#include "providers/broadcast.h"

namespace onnx_fp8 {

AttentionSizes SizesOf(const KernelContext& ctx, const AttentionInputs& in) {
  size_t first = in.first;
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
                      .causal = ctx.Int("causal", 0) != 0,
                      .round_to = static_cast<DType>(ctx.Int("round_to", 0))};
  Check(z.heads > 0 && z.groups > 0 && z.heads % z.groups == 0 &&
            q.dim(2) % z.heads == 0 && v.dim(2) % z.groups == 0,
        "[", ctx.Where(), "] expected heads that divide the operands, got ",
        z.heads, " and ", z.groups, " of ", ToString(q.shape()),
        ToString(v.shape()));
  z.d = q.dim(2) / z.heads;
  z.e = v.dim(2) / z.groups;
  DType dtype = IsHalf(q.dtype()) ? DType::kFloat : q.dtype();
  CheckOperand(ctx, first + 1, dtype, {z.b, z.s, z.groups * z.d});
  CheckOperand(ctx, first + 2, dtype, {z.b, z.s, z.groups * z.e});
  if (in.has_relative) {
    CheckOperand(ctx, in.relative(), dtype, {z.heads, z.Distances()});
  }
  if (!in.has_bias) return z;
  const Tensor& bias = ctx.In(in.bias());
  Shape scores = {z.b, z.heads, z.t, z.s};
  Check(bias.dtype() == dtype && bias.rank() <= 4 &&
            BroadcastShapes(bias.shape(), scores, ctx.Where()) == scores,
        "[", ctx.Where(), "] expected a bias that broadcasts to ",
        ToString(scores), ", got ", Name(bias.dtype()), ToString(bias.shape()));
  std::ranges::copy(BroadcastStrides(bias.shape(), 4), z.bias_step);
  return z;
}

}  // namespace onnx_fp8
