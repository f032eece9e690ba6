// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/convolution/swap_axes.h"
#include "providers/cuda/core/elementwise.h"

namespace onnx_fp8::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    SwapAxesKernel(FloatsIn x, FloatsOut y, int64_t rows, int64_t middle,
                   int64_t columns, int64_t inner) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * middle * columns * inner) return;
  int64_t outer = at / inner;
  int64_t plane = outer / rows, row = outer - plane * rows;
  int64_t column = plane / middle, between = plane - column * middle;
  int64_t from = (row * middle + between) * columns + column;
  Store(y, at, Load(x, from * inner + at - outer * inner));
}

}  // namespace

void SwapAxes(const KernelContext& ctx, FloatsIn x, FloatsOut y, int64_t rows,
              int64_t middle, int64_t columns, int64_t inner) {
  int64_t n = rows * middle * columns * inner;
  if (n == 0) return;
  Launch(SwapAxesKernel, static_cast<unsigned>(DivideUp(n, kThreads)), kThreads,
         0, QueueOf(ctx).stream(), x, y, rows, middle, columns, inner);
}

}  // namespace onnx_fp8::cuda
