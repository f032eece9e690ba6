// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/masters.cc. Traffic: each operand is read once, each
// result is written once.
#include "base/master_codes.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EncodeMasterKernel(const float* x, int64_t n, uint16_t* half,
                       T* correction) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const auto code = EncodeMaster<8 * sizeof(T)>(__float_as_uint(x[i]));
  half[i] = code.half;
  correction[i] = static_cast<T>(code.correction);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DecodeMasterKernel(const uint16_t* half, const T* correction, int64_t n,
                       float* x) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  x[i] = __uint_as_float(DecodeMaster<8 * sizeof(T)>(half[i], correction[i]));
}

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
  const DType dtype = CorrectionDType(ctx);
  auto* x = static_cast<const float*>(ctx.In(0).raw());
  auto* half =
      static_cast<uint16_t*>(ctx.Out(0, DType::kBFloat16, shape).raw());
  void* rest = ctx.Out(1, dtype, shape).raw();
  const int64_t n = ctx.In(0).size();
  if (n == 0) return;
  cudaStream_t stream = QueueOf(ctx).stream();
  if (dtype == DType::kInt8) {
    Launch(EncodeMasterKernel<int8_t>, BlocksFor(n), kThreads, 0, stream, x, n,
           half, static_cast<int8_t*>(rest));
  } else {
    Launch(EncodeMasterKernel<int16_t>, BlocksFor(n), kThreads, 0, stream, x, n,
           half, static_cast<int16_t*>(rest));
  }
}

// Inputs: half, correction.
void DecodeMasterOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  const DType dtype = CorrectionDType(ctx);
  CheckOperand(ctx, 0, DType::kBFloat16, shape);
  CheckOperand(ctx, 1, dtype, shape);
  auto* half = static_cast<const uint16_t*>(ctx.In(0).raw());
  const void* rest = ctx.In(1).raw();
  auto* x = static_cast<float*>(ctx.Out(0, DType::kFloat, shape).raw());
  const int64_t n = ctx.In(0).size();
  if (n == 0) return;
  cudaStream_t stream = QueueOf(ctx).stream();
  if (dtype == DType::kInt8) {
    Launch(DecodeMasterKernel<int8_t>, BlocksFor(n), kThreads, 0, stream, half,
           static_cast<const int8_t*>(rest), n, x);
  } else {
    Launch(DecodeMasterKernel<int16_t>, BlocksFor(n), kThreads, 0, stream, half,
           static_cast<const int16_t*>(rest), n, x);
  }
}

}  // namespace

void RegisterMaster(KernelRegistry& r) {
  r.Add("EncodeMaster", EncodeMasterOp, {}, kDomain);
  r.Add("DecodeMaster", DecodeMasterOp, {}, kDomain);
}

}  // namespace onnx_fp8::cuda
