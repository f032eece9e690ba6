// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/fp8/scaled_product.h"

#include "base/check.h"
#include "providers/cpu/stored.h"

namespace onnx_fp8 {

void SetProduct(KernelContext& ctx, const Tensor* bias, int64_t b_k,
                GemmProblem* p) {
  const Tensor &a = ctx.In(0), &b = ctx.In(2);
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  Check(b_k == p->k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        ta ? " transposed" : "", " and ", ToString(b.shape()),
        tb ? " transposed" : "");
  if (bias) {
    Check(bias->dtype() == DType::kFloat && bias->shape() == Shape{p->n}, "[",
          ctx.Where(), "] expected bias float[", p->n, "], got ",
          Name(bias->dtype()), ToString(bias->shape()));
    p->bias = bias->raw();
  }
  Shape y_shape = {p->m, p->n};
  if (!ta) {
    y_shape = a.shape();
    y_shape.back() = p->n;
  }
  Tensor y = StoredResult(ctx, 0, DType::kFloat, y_shape);
  p->c = y.raw();
  p->c_dtype = y.dtype();
  p->fast_accum = ctx.Int("fast_accum", 0) != 0;
}

}  // namespace onnx_fp8
