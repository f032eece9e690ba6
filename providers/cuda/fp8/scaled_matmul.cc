// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/fp8/scaled_product.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

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
struct Multiplied {
  ScaledOperand a, b;
  Shape shape;  // of y
};

Multiplied MultipliedIn(const KernelContext& ctx) {
  ScaledOperand a = OperandOf(ctx, 0, ctx.Int("transA", 0) != 0);
  ScaledOperand b = OperandOf(ctx, 2, ctx.Int("transB", 0) != 0);
  return {a, b, ProductShape(ctx.In(0), a, b)};
}

// The same of operands whose quantizers have added zeros.
Multiplied PaddedIn(const KernelContext& ctx) {
  return {OperandOf(ctx, 0, false), OperandOf(ctx, 2, true), ctx.Ints("shape")};
}

using Reader = Multiplied (*)(const KernelContext&);

template <Reader kRead, Addend kAddend>
void Multiply(KernelContext& ctx) {
  Multiplied p = kRead(ctx);
  MultiplyScaled(ctx, p.a, p.b, kAddend, p.shape);
}

template <Reader kRead, Addend kAddend>
size_t Workspace(KernelContext& ctx) {
  Multiplied p = kRead(ctx);
  return ScaledWorkspace(ctx, p.a, p.b, kAddend, p.shape);
}

template <Reader kRead, Addend kAddend>
void Register(KernelRegistry& r, const char* op, KernelTraits traits) {
  traits.one_e5m2 = true;
  traits.workspace = Workspace<kRead, kAddend>;
  r.Add(op, Multiply<kRead, kAddend>, traits, kDomain);
}

// `ops`: with nothing to add, with a bias, with a matrix.
template <Reader kRead>
void RegisterAll(KernelRegistry& r, const char* const (&ops)[3]) {
  Register<kRead, Addend::kNone>(r, ops[0], {.narrow_out = {0}});
  Register<kRead, Addend::kBias>(r, ops[1],
                                 {.narrow_in = {4}, .narrow_out = {0}});
  Register<kRead, Addend::kMatrix>(r, ops[2], {.in_place = {{4, 0}}});
}

}  // namespace

void RegisterScaledMatMul(KernelRegistry& r) {
  RegisterAll<MultipliedIn>(
      r, {"ScaledMatMul", "ScaledMatMulBias", "ScaledMatMulAdd"});
  RegisterAll<PaddedIn>(r, {"ScaledMatMulPadded", "ScaledMatMulPaddedBias",
                            "ScaledMatMulPaddedAdd"});
}

}  // namespace onnx_fp8::cuda
