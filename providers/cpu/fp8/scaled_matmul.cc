// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "providers/cpu/fp8/scaled_product.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/kernel.h"

namespace onnx_fp8 {
namespace {

// An operand of any rank >= 2 as a matrix: all axes but the last are joined.
struct Flat {
  int64_t rows, columns;
};

Flat Flatten(const Tensor& t, const std::string& where) {
  Check(IsFloat8(t.dtype()) && t.rank() >= 2, "[", where,
        "] expected an 8-bit float of rank 2 or more, got ", Name(t.dtype()),
        ToString(t.shape()));
  Shape lead(t.shape().begin(), t.shape().end() - 1);
  return {NumElements(lead), t.dim(-1)};
}

float ScaleOf(const Tensor& t, const std::string& where) {
  Check(t.dtype() == DType::kFloat && t.size() == 1, "[", where,
        "] expected one float as scale, got ", Name(t.dtype()),
        ToString(t.shape()));
  return *t.data<float>();
}

// y = (op(a_q) · op(b_q)) · (a_scale · b_scale) [+ addend].
template <Addend kAddend>
void MultiplyScaled(KernelContext& ctx) {
  std::string where = ctx.Where();
  const Tensor &a = ctx.In(0), &b = ctx.In(2);
  Flat fa = Flatten(a, where), fb = Flatten(b, where);
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  GemmProblem p = {
      .m = ta ? fa.columns : fa.rows,
      .n = tb ? fb.rows : fb.columns,
      .k = ta ? fa.rows : fa.columns,
      .a = {a.raw(), a.dtype(), fa.columns, ta},
      .b = {b.raw(), b.dtype(), fb.columns, tb},
      .scale = ScaleOf(ctx.In(1), where) * ScaleOf(ctx.In(3), where)};
  SetProduct(ctx, kAddend, tb ? fb.columns : fb.rows, &p);
  Gemm(p);
}

}  // namespace

void RegisterScaledMatMul(KernelRegistry& r) {
  r.Add("ScaledMatMul", MultiplyScaled<Addend::kNone>, {.narrow_out = {0}},
        kDomain);
  r.Add("ScaledMatMulAdd", MultiplyScaled<Addend::kSum>,
        {.in_place = {{4, 0}}, .adds_depth = kAddDepth}, kDomain);
  r.Add("ScaledMatMulBias", MultiplyScaled<Addend::kBias>, {.narrow_out = {0}},
        kDomain);
}

}  // namespace onnx_fp8
