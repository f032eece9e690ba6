// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/masters.cc.
#include "base/master_codes.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

DType CorrectionDType(const KernelContext& ctx) {
  return static_cast<DType>(ctx.Int("correction", 0));
}

// Input: x.
void EncodeMasterOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  CheckOperand(ctx, 0, DType::kFloat, shape);
  const DType dtype = CorrectionDType(ctx);
  const float* x = ctx.In(0).data<float>();
  auto* half =
      static_cast<uint16_t*>(ctx.Out(0, DType::kBFloat16, shape).raw());
  void* correction = ctx.Out(1, dtype, shape).raw();
  DispatchAmong<int8_t, int16_t>(
      dtype, ctx.Where(), "int8 or int16", [&]<typename T>() {
        T* rest = static_cast<T*>(correction);
        ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
          OnBestIsa([=] {
            EncodeMasters(x + begin, end - begin, half + begin, rest + begin);
          });
        });
      });
}

// Inputs: half, correction.
void DecodeMasterOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  const DType dtype = CorrectionDType(ctx);
  CheckOperand(ctx, 0, DType::kBFloat16, shape);
  CheckOperand(ctx, 1, dtype, shape);
  auto* half = static_cast<const uint16_t*>(ctx.In(0).raw());
  float* x = ctx.Out(0, DType::kFloat, shape).data<float>();
  DispatchAmong<int8_t, int16_t>(
      dtype, ctx.Where(), "int8 or int16", [&]<typename T>() {
        const T* rest = ctx.In(1).data<T>();
        ParallelFor(ctx.In(0).size(), kGrain, [=](int64_t begin, int64_t end) {
          OnBestIsa([=] {
            DecodeMasters(half + begin, rest + begin, end - begin, x + begin);
          });
        });
      });
}

}  // namespace

void RegisterMaster(KernelRegistry& r) {
  r.Add("EncodeMaster", EncodeMasterOp, {}, kDomain);
  r.Add("DecodeMaster", DecodeMasterOp, {}, kDomain);
}

}  // namespace onnx_fp8
