// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/column_parts.h"
#include "providers/cuda/core/rows.h"

namespace onnx_fp8::cuda {
namespace {

// A block has 32 columns, and 32 lines that read the parts in turn.
__global__ void __launch_bounds__(1024) AddColumnPartsKernel(ColumnParts p) {
  __shared__ float sums[32][33];
  int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  FloatsOut out = blockIdx.y == 0 ? p.dscale : p.dbias;
  const float* from = p.partial + blockIdx.y * p.parts * p.n;
  int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (column < p.n) {
    for (int64_t i = line; i < p.parts; i += 32) sum += from[i * p.n + column];
  }
  sums[line][lane] = sum;
  __syncthreads();
  sum = SumOfWarp(sums[lane][line]);
  int64_t to = static_cast<int64_t>(blockIdx.x) * 32 + line;
  if (lane == 0 && to < p.n && out.data) Store(out, to, sum);
}

}  // namespace

void AddColumnParts(const KernelContext& ctx, const ColumnParts& p) {
  if (p.n == 0) return;
  dim3 grid(static_cast<unsigned>(DivideUp(p.n, 32)), p.dbias.data ? 2 : 1);
  Launch(AddColumnPartsKernel, grid, 1024, 0, QueueOf(ctx).stream(), p);
}

}  // namespace onnx_fp8::cuda
