// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/masters.cc.
#include "base/check.h"
#include "providers/cpu/math/master_codec.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

DType CorrectionDType(const KernelContext& ctx) {
  const auto dtype = static_cast<DType>(ctx.Int("correction", 0));
  Check(dtype == DType::kInt8 || dtype == DType::kInt16, "[", ctx.Where(),
        "] expected a correction of int8 or int16, got ", Name(dtype));
  return dtype;
}

// Input: x.
void EncodeMasterOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  CheckOperand(ctx, 0, DType::kFloat, shape);
  const float* x = ctx.In(0).data<float>();
  MasterCodec codec = {.correction = CorrectionDType(ctx)};
  codec.out = static_cast<uint16_t*>(ctx.Out(0, DType::kBFloat16, shape).raw());
  codec.correction_out = ctx.Out(1, codec.correction, shape).raw();
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    codec.Encode(x + begin, begin, end - begin);
  });
}

// Inputs: half, correction.
void DecodeMasterOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  MasterCodec codec = {.correction = CorrectionDType(ctx)};
  CheckOperand(ctx, 0, DType::kBFloat16, shape);
  CheckOperand(ctx, 1, codec.correction, shape);
  codec.in = static_cast<const uint16_t*>(ctx.In(0).raw());
  codec.correction_in = ctx.In(1).raw();
  float* x = ctx.Out(0, DType::kFloat, shape).data<float>();
  ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
    codec.Decode(begin, end - begin, x + begin);
  });
}

}  // namespace

void RegisterMaster(KernelRegistry& r) {
  r.Add("EncodeMaster", EncodeMasterOp, {}, kDomain);
  r.Add("DecodeMaster", DecodeMasterOp, {}, kDomain);
}

}  // namespace onnx_fp8
