// SPDX-License-Identifier: Apache-2.0
//
// The bias of a convolution that a library has computed. Traffic: y is read and
// written once.
#include "providers/cuda/convolution/add_bias.h"
#include "providers/cuda/core/elementwise.h"

namespace onnx_fp8::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    AddBiasKernel(FloatsOut y, FloatsIn bias, int64_t size, int64_t channels,
                  int64_t plane) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  Store(y, i, Load({y.data, y.storage}, i) + Load(bias, i / plane % channels));
}

}  // namespace

void AddBias(const KernelContext& ctx, FloatsOut y, FloatsIn bias,
             int64_t planes, int64_t channels, int64_t plane) {
  int64_t size = planes * plane;
  Launch(AddBiasKernel, static_cast<unsigned>(DivideUp(size, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), y, bias, size, channels, plane);
}

}  // namespace onnx_fp8::cuda
