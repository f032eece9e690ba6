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

// y = (op(a_q) · op(b_q)) · a_scale · b_scale [+ operand 4].
void Multiply(KernelContext& ctx, Addend addend) {
  ScaledOperand a = OperandOf(ctx, 0, ctx.Int("transA", 0) != 0);
  ScaledOperand b = OperandOf(ctx, 2, ctx.Int("transB", 0) != 0);
  MultiplyScaled(ctx, a, b, addend, ProductShape(ctx.In(0), a, b));
}

void ScaledMatMul(KernelContext& ctx) { Multiply(ctx, Addend::kNone); }
void ScaledMatMulBias(KernelContext& ctx) { Multiply(ctx, Addend::kBias); }
void ScaledMatMulAdd(KernelContext& ctx) { Multiply(ctx, Addend::kMatrix); }

// The same of operands whose quantizers have added zeros.
void MultiplyPadded(KernelContext& ctx, Addend addend) {
  ScaledOperand a = OperandOf(ctx, 0, false), b = OperandOf(ctx, 2, true);
  MultiplyScaled(ctx, a, b, addend, ctx.Ints("shape"));
}

void ScaledMatMulPadded(KernelContext& ctx) {
  MultiplyPadded(ctx, Addend::kNone);
}
void ScaledMatMulPaddedBias(KernelContext& ctx) {
  MultiplyPadded(ctx, Addend::kBias);
}
void ScaledMatMulPaddedAdd(KernelContext& ctx) {
  MultiplyPadded(ctx, Addend::kMatrix);
}

}  // namespace

void RegisterScaledMatMul(KernelRegistry& r) {
  const KernelTraits plain{.narrow_out = {0}, .one_e5m2 = true};
  const KernelTraits biased{
      .narrow_in = {4}, .narrow_out = {0}, .one_e5m2 = true};
  const KernelTraits adds{.in_place = {{4, 0}}, .one_e5m2 = true};
  r.Add("ScaledMatMul", ScaledMatMul, plain, kDomain);
  r.Add("ScaledMatMulBias", ScaledMatMulBias, biased, kDomain);
  r.Add("ScaledMatMulAdd", ScaledMatMulAdd, adds, kDomain);
  r.Add("ScaledMatMulPadded", ScaledMatMulPadded, plain, kDomain);
  r.Add("ScaledMatMulPaddedBias", ScaledMatMulPaddedBias, biased, kDomain);
  r.Add("ScaledMatMulPaddedAdd", ScaledMatMulPaddedAdd, adds, kDomain);
}

}  // namespace onnx_fp8::cuda
