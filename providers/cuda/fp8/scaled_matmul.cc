// SPDX-License-Identifier: Apache-2.0
#include "providers/arguments.h"
#include "providers/cuda/fp8/scaled_product.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

const float* ScaleOf(const KernelContext& ctx, size_t i) {
  const Tensor& t = Operand(ctx, i);
  Check(t.dtype() == DType::kFloat && t.size() == 1, "[", ctx.Where(),
        "] expected one float as scale, got ", Name(t.dtype()),
        ToString(t.shape()));
  return static_cast<const float*>(t.raw());
}

// y = (op(a_q) · op(b_q)) · a_scale · b_scale [+ bias].
void Multiply(KernelContext& ctx, bool has_bias) {
  ScaledOperand a = CodesOf(ctx, 0, ctx.Int("transA", 0) != 0, true);
  ScaledOperand b = CodesOf(ctx, 2, ctx.Int("transB", 0) != 0, false);
  a.scales = ScaleOf(ctx, 1);
  b.scales = ScaleOf(ctx, 3);
  MultiplyScaled(ctx, a, b, has_bias);
}

void ScaledMatMul(KernelContext& ctx) { Multiply(ctx, false); }
void ScaledMatMulBias(KernelContext& ctx) { Multiply(ctx, true); }

}  // namespace

void RegisterScaledMatMul(KernelRegistry& r) {
  r.Add("ScaledMatMul", ScaledMatMul, {.narrow_out = {0}, .one_e5m2 = true},
        kDomain);
  r.Add("ScaledMatMulBias", ScaledMatMulBias,
        {.narrow_in = {4}, .narrow_out = {0}, .one_e5m2 = true}, kDomain);
}

}  // namespace onnx_fp8::cuda
