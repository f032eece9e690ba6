// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/fp8/scaled_product.h"

#include "base/check.h"
#include "providers/cpu/stored.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kAdded = 4;  // input

}  // namespace

void SetProduct(KernelContext& ctx, Addend addend, int64_t b_k,
                GemmProblem* p) {
  const Tensor &a = ctx.In(0), &b = ctx.In(2);
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  Check(b_k == p->k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        ta ? " transposed" : "", " and ", ToString(b.shape()),
        tb ? " transposed" : "");
  Shape y_shape = {p->m, p->n};
  if (!ta) {
    y_shape = a.shape();
    y_shape.back() = p->n;
  }
  if (addend != Addend::kNone) {
    bool is_bias = addend == Addend::kBias;
    const Tensor& added = ctx.In(kAdded);
    const Shape& expected = is_bias ? Shape{p->n} : y_shape;
    Check(added.dtype() == DType::kFloat && added.shape() == expected, "[",
          ctx.Where(), "] expected ", is_bias ? "bias" : "addend", " float",
          ToString(expected), ", got ", Name(added.dtype()),
          ToString(added.shape()));
    if (is_bias) p->bias = added.raw();
  }
  Tensor y = StoredResult(ctx, 0, DType::kFloat, y_shape);
  if (addend == Addend::kSum) {
    CopyBytes(ctx.In(kAdded), y);  // unless they share memory
    p->add = true;
  }
  p->c = y.raw();
  p->c_dtype = y.dtype();
  p->fast_accum = ctx.Int("fast_accum", 0) != 0;
}

}  // namespace onnx_fp8
