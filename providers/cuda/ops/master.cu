// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/masters.cc. Traffic: each operand is read once, each
// result is written once.
#include "base/master_codes.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/load_store.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

// Elements of a thread, which one instruction moves. All tensors are aligned to
// 16 bytes.
constexpr int kOfThread = 4;

template <typename T>
__device__ VectorOf4<T> LoadFour(const T* x, int64_t i) {
  return reinterpret_cast<const VectorOf4<T>*>(x)[i / kOfThread];
}

template <typename T>
__device__ void StoreFour(T* y, int64_t i, const VectorOf4<T>& four) {
  reinterpret_cast<VectorOf4<T>*>(y)[i / kOfThread] = four;
}

template <typename T>
__device__ void EncodeOne(float x, uint16_t& half, T& correction) {
  const auto code = EncodeMaster<8 * sizeof(T)>(__float_as_uint(x));
  half = code.half;
  correction = static_cast<T>(code.correction);
}

template <typename T>
__device__ float DecodeOne(uint16_t half, T correction) {
  return __uint_as_float(DecodeMaster<8 * sizeof(T)>(half, correction));
}

__device__ int64_t FirstOfThread() {
  return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) *
         kOfThread;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EncodeMasterKernel(const float* x, int64_t n, uint16_t* half,
                       T* correction) {
  int64_t i = FirstOfThread();
  if (i + kOfThread <= n) {
    const VectorOf4<float> in = LoadFour(x, i);
    VectorOf4<uint16_t> high;
    VectorOf4<T> low;
    for (int k = 0; k < kOfThread; ++k) {
      EncodeOne(in.x[k], high.x[k], low.x[k]);
    }
    StoreFour(half, i, high);
    StoreFour(correction, i, low);
    return;
  }
  for (; i < n; ++i) EncodeOne(x[i], half[i], correction[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DecodeMasterKernel(const uint16_t* half, const T* correction, int64_t n,
                       float* x) {
  int64_t i = FirstOfThread();
  if (i + kOfThread <= n) {
    const VectorOf4<uint16_t> high = LoadFour(half, i);
    const VectorOf4<T> low = LoadFour(correction, i);
    VectorOf4<float> out;
    for (int k = 0; k < kOfThread; ++k) {
      out.x[k] = DecodeOne(high.x[k], low.x[k]);
    }
    StoreFour(x, i, out);
    return;
  }
  for (; i < n; ++i) x[i] = DecodeOne(half[i], correction[i]);
}

unsigned BlocksOfMaster(int64_t n) { return BlocksFor(DivideUp(n, kOfThread)); }

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
    Launch(EncodeMasterKernel<int8_t>, BlocksOfMaster(n), kThreads, 0, stream,
           x, n, half, static_cast<int8_t*>(rest));
  } else {
    Launch(EncodeMasterKernel<int16_t>, BlocksOfMaster(n), kThreads, 0, stream,
           x, n, half, static_cast<int16_t*>(rest));
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
    Launch(DecodeMasterKernel<int8_t>, BlocksOfMaster(n), kThreads, 0, stream,
           half, static_cast<const int8_t*>(rest), n, x);
  } else {
    Launch(DecodeMasterKernel<int16_t>, BlocksOfMaster(n), kThreads, 0, stream,
           half, static_cast<const int16_t*>(rest), n, x);
  }
}

}  // namespace

void RegisterMaster(KernelRegistry& r) {
  r.Add("EncodeMaster", EncodeMasterOp, {}, kDomain);
  r.Add("DecodeMaster", DecodeMasterOp, {}, kDomain);
}

}  // namespace onnx_fp8::cuda
