// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/gemm/finish.h"

namespace onnx_fp8::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) FinishKernel(Finish f) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= f.m * f.n) return;
  int64_t i = at / f.n, j = at % f.n;
  float scale = f.row_scale ? f.row_scale[i] : 1.0f;
  if (f.column_scale) scale *= f.column_scale[j];
  float y = f.sum[i * f.ld + j] * scale;
  if (f.c.data) y += f.beta * Load(f.c, i * f.c_row + j * f.c_column);
  Store(f.y, at, y);
}

}  // namespace

void FinishProduct(const Queue& queue, const Finish& finish) {
  int64_t size = finish.m * finish.n;
  if (size == 0) return;
  Launch(FinishKernel, static_cast<unsigned>(DivideUp(size, kThreads)),
         kThreads, 0, queue.stream(), finish);
}

}  // namespace onnx_fp8::cuda
