// SPDX-License-Identifier: Apache-2.0
//
// The amax of what a library has written. Traffic: the result is read once. The
// amax is exact.
#include <algorithm>

#include "providers/cuda/attention/measure.h"
#include "providers/cuda/core/elementwise.h"

namespace onnx_fp8::cuda {
namespace {

// n is a multiple of 4.
__global__ void __launch_bounds__(kThreads)
    MeasureResultKernel(FloatsIn x, int64_t n, DeviceAmax* amax) {
  AmaxPart seen;
  int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kPerThread;
  for (int64_t at =
           (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) *
           kPerThread;
       at < n; at += stride) {
    float part[kPerThread];
    Load4(x, at, part);
    for (float v : part) seen.Add(v);
  }
  seen.AddOfBlock(amax);
}

}  // namespace

void MeasureResult(KernelContext& ctx, size_t i) {
  DeviceAmax* amax = ClearedAmax(ctx, i);
  if (!amax) return;
  const Tensor& x = ctx.Out(i);
  int64_t blocks = DivideUp(x.size(), kThreads * kPerThread);
  Launch(MeasureResultKernel,
         std::min(static_cast<unsigned>(blocks), kMostBlocks), kThreads, 0,
         QueueOf(ctx).stream(), FloatsIn{x.raw(), Storage::kBFloat16}, x.size(),
         amax);
}

}  // namespace onnx_fp8::cuda
