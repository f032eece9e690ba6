// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/attention_sizes.h"

#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"

namespace onnx_fp8 {

namespace {

// Operands of their own: (B,rows,heads·width).
HeadLayout OwnLayout(int64_t rows, int64_t heads, int64_t width) {
  return {.batch = rows * heads * width, .row = heads * width, .head = width};
}

void CheckHeads(const KernelContext& ctx, const AttentionSizes& z, bool fits,
                const std::string& shapes) {
  Check(z.heads > 0 && z.groups > 0 && z.heads % z.groups == 0 && fits, "[",
        ctx.Where(), "] expected heads that divide the operands, got ", z.heads,
        " and ", z.groups, " of ", shapes);
}

void SetSeparate(const KernelContext& ctx, size_t first, AttentionSizes* z) {
  const Tensor &q = ctx.In(first), &k = ctx.In(first + 1),
               &v = ctx.In(first + 2);
  Check(q.rank() == 3 && k.rank() == 3 && v.rank() == 3, "[", ctx.Where(),
        "] expected q, k, v of rank 3, got ", ToString(q.shape()),
        ToString(k.shape()), ToString(v.shape()));
  z->b = q.dim(0), z->t = q.dim(1), z->s = k.dim(1);
  CheckHeads(ctx, *z,
             z->heads > 0 && z->groups > 0 && q.dim(2) % z->heads == 0 &&
                 v.dim(2) % z->groups == 0,
             ToString(q.shape()) + ToString(v.shape()));
  z->d = q.dim(2) / z->heads;
  z->e = v.dim(2) / z->groups;
  DType dtype = IsHalf(q.dtype()) ? DType::kFloat : q.dtype();
  CheckOperand(ctx, first + 1, dtype, {z->b, z->s, z->groups * z->d});
  CheckOperand(ctx, first + 2, dtype, {z->b, z->s, z->groups * z->e});
  z->q = OwnLayout(z->t, z->heads, z->d);
  z->k = OwnLayout(z->s, z->groups, z->d);
  z->v = OwnLayout(z->s, z->groups, z->e);
  z->y = OwnLayout(z->t, z->heads, z->e);
  z->y_shape = {z->b, z->t, z->heads * z->e};
}

void SetPacked(const KernelContext& ctx, size_t first, AttentionSizes* z) {
  const Tensor& qkv = ctx.In(first);
  Check(qkv.rank() == 3, "[", ctx.Where(), "] expected qkv of rank 3, got ",
        ToString(qkv.shape()));
  std::vector<int64_t> perm = ctx.Ints("perm");
  bool time_first = perm == std::vector<int64_t>{1, 0, 2};
  Check(time_first || perm == std::vector<int64_t>{0, 1, 2}, "[", ctx.Where(),
        "] expected perm [0,1,2] or [1,0,2], got ", ToString(perm));
  z->b = qkv.dim(time_first ? 1 : 0);
  z->t = z->s = qkv.dim(time_first ? 0 : 1);
  int64_t heads = z->heads + 2 * z->groups, width = qkv.dim(2);
  CheckHeads(ctx, *z, heads > 0 && width % heads == 0, ToString(qkv.shape()));
  z->d = z->e = width / heads;
  auto layout = [&](int64_t first_head, int64_t row) {
    return HeadLayout{.first = first_head * z->d,
                      .batch = time_first ? row : z->t * row,
                      .row = time_first ? z->b * row : row,
                      .head = z->d};
  };
  z->q = layout(0, width);
  z->k = layout(z->heads, width);
  z->v = layout(z->heads + z->groups, width);
  z->y = layout(0, z->heads * z->d);
  z->y_shape = {qkv.dim(0), qkv.dim(1), z->heads * z->d};
}

}  // namespace

std::vector<size_t> AttentionInputs::KeptNarrow() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < first + count(); ++i) places.push_back(i);
  if (backward()) places.push_back(y());
  return places;
}

std::vector<size_t> AttentionInputs::Gradients() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < count(); ++i) places.push_back(i);
  return places;
}

AttentionSizes SizesOf(const KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = {.heads = ctx.Int("heads", 0),
                      .groups = ctx.Int("kv_heads", 0),
                      .scale = ctx.Float("scale", 1.0f),
                      .causal = ctx.Int("causal", 0) != 0,
                      .round_to = static_cast<DType>(ctx.Int("round_to", 0))};
  if (in.packed) {
    SetPacked(ctx, in.first, &z);
  } else {
    SetSeparate(ctx, in.first, &z);
  }
  DType dtype = ctx.In(in.first).dtype();
  if (IsHalf(dtype)) dtype = DType::kFloat;
  if (in.has_relative) {
    CheckOperand(ctx, in.relative(), dtype, {z.heads, z.Distances()});
  }
  if (in.has_segments) {
    CheckOperand(ctx, in.segments(), DType::kInt32, {z.b, z.t});
    Check(z.t == z.s, "[", ctx.Where(),
          "] expected as many columns as rows for segments, got ", z.s, " and ",
          z.t);
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
