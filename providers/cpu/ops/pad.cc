// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/pad.h"

#include <cstring>

#include "providers/cpu/strided.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

void Pad(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Shape shape = PaddedShape(ctx);
  uint64_t fill = 0;
  size_t width = ByteSize(x.dtype());
  if (ctx.HasIn(2)) std::memcpy(&fill, ctx.In(2).raw(), width);
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  if (x.rank() == 0) {
    std::memcpy(y.raw(), x.raw(), width);
    return;
  }
  CopyMapped(PadTables(ctx, shape), width, x.raw(), &fill, y.raw());
}

}  // namespace

void RegisterPad(KernelRegistry& r) { r.Add("Pad", Pad); }

}  // namespace onnx_fp8
