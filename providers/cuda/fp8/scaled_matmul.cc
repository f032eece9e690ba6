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

// An operand of the node with one scale.
ScaledOperand OperandOf(const KernelContext& ctx, size_t i, bool transposed) {
  ScaledOperand x = CodesOf(ctx, i, transposed, i == 0);
  x.scales = ScaleOf(ctx, i + 1);
  return x;
}

// y = (op(a_q) · op(b_q)) · a_scale · b_scale [+ bias].
void Multiply(KernelContext& ctx, bool has_bias) {
  ScaledOperand a = OperandOf(ctx, 0, ctx.Int("transA", 0) != 0);
  ScaledOperand b = OperandOf(ctx, 2, ctx.Int("transB", 0) != 0);
  MultiplyScaled(ctx, a, b, has_bias, ProductShape(ctx.In(0), a, b));
}

void ScaledMatMul(KernelContext& ctx) { Multiply(ctx, false); }
void ScaledMatMulBias(KernelContext& ctx) { Multiply(ctx, true); }

// The same of operands whose quantizers have added zeros.
void MultiplyPadded(KernelContext& ctx, bool has_bias) {
  ScaledOperand a = OperandOf(ctx, 0, false), b = OperandOf(ctx, 2, true);
  MultiplyScaled(ctx, a, b, has_bias, ctx.Ints("shape"));
}

void ScaledMatMulPadded(KernelContext& ctx) { MultiplyPadded(ctx, false); }
void ScaledMatMulPaddedBias(KernelContext& ctx) { MultiplyPadded(ctx, true); }

}  // namespace

void RegisterScaledMatMul(KernelRegistry& r) {
  const KernelTraits plain{.narrow_out = {0}, .one_e5m2 = true};
  const KernelTraits biased{
      .narrow_in = {4}, .narrow_out = {0}, .one_e5m2 = true};
  r.Add("ScaledMatMul", ScaledMatMul, plain, kDomain);
  r.Add("ScaledMatMulBias", ScaledMatMulBias, biased, kDomain);
  r.Add("ScaledMatMulPadded", ScaledMatMulPadded, plain, kDomain);
  r.Add("ScaledMatMulPaddedBias", ScaledMatMulPaddedBias, biased, kDomain);
}

}  // namespace onnx_fp8::cuda
