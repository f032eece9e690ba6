// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/dispatch.h"

#include <vector>

#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Whether operand i is a 16-bit float, and no float that is kept in 16 bits.
bool IsHalfIn(const KernelContext& ctx, size_t i) {
  return ctx.HasIn(i) && IsHalf(ctx.In(i).dtype()) &&
         ctx.NarrowIn(i) == DType::kUndefined;
}

// The dtype of the first 16-bit float operand; kUndefined if there is none.
DType FirstHalf(const KernelContext& ctx) {
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    if (IsHalfIn(ctx, i)) return ctx.In(i).dtype();
  }
  return DType::kUndefined;
}

}  // namespace

Tensor WideInteger(const Tensor& x) {
  bool narrow = IsInteger(x.dtype()) && ByteSize(x.dtype()) < 8;
  return narrow ? ConvertTo(x, DType::kInt64) : x;
}

void RunWidened(KernelContext& ctx, Kernel kernel) {
  DType narrow = FirstHalf(ctx);
  if (narrow == DType::kUndefined) return kernel(ctx);
  std::vector<Tensor> inputs(ctx.num_inputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!ctx.HasIn(i)) continue;
    const Tensor& x = ctx.In(i);
    inputs[i] = IsHalfIn(ctx, i) ? ConvertTo(x, DType::kFloat) : x;
  }
  std::vector<Tensor> outputs(ctx.num_outputs());
  KernelContext wide = ctx.With(inputs, outputs);
  kernel(wide);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!ctx.HasOut(i) || !outputs[i].defined()) continue;
    DType dtype = ctx.node().out(i)->dtype;
    if (dtype == DType::kUndefined) {
      bool is_float = outputs[i].dtype() == DType::kFloat;
      dtype = is_float ? narrow : outputs[i].dtype();
    }
    SetResult(ctx, i, ConvertTo(outputs[i], dtype));
  }
}

}  // namespace onnx_fp8
