// SPDX-License-Identifier: Apache-2.0
//
// Pad in all modes. Traffic: mapped.h's.
#include "providers/ops/pad.h"

#include "providers/cuda/ops/mapped.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

void Pad(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Shape shape = PaddedShape(ctx);
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  const void* fill = ctx.HasIn(2) ? ctx.In(2).raw() : nullptr;
  CopyMapped(ctx, PadTables(ctx, shape), ByteSize(x.dtype()), x.raw(), fill,
             y.raw());
}

}  // namespace

void RegisterPad(KernelRegistry& r) { r.Add("Pad", Pad); }

}  // namespace onnx_fp8::cuda
