// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/gemm/block_scales.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

// cuBLASLt pads the rows of scales.
constexpr int64_t kRowUnit = 4;

struct PackedGrid {
  int64_t rows, columns;  // columns are padded
  bool k_is_rows;
};

PackedGrid GridOf(ScaleMode mode, int64_t outer, int64_t k) {
  if (mode == ScaleMode::kVector128) return {k, RoundUp(outer, kRowUnit), true};
  return {outer, RoundUp(k, kRowUnit), false};
}

__global__ void __launch_bounds__(kThreads)
    PackScalesKernel(BlockScales x, PackedGrid grid, float* to) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= grid.rows * grid.columns) return;
  int64_t row = at / grid.columns, column = at % grid.columns;
  int64_t outer = grid.k_is_rows ? column : row;
  int64_t k = grid.k_is_rows ? row : column;
  bool inside = outer < x.outer && k < x.k;
  int64_t from = x.k_is_rows ? k * x.outer + outer : outer * x.k + k;
  to[at] = inside ? x.data[from] : 0.0f;
}

}  // namespace

int64_t PackedScales(ScaleMode mode, int64_t outer, int64_t k) {
  PackedGrid grid = GridOf(mode, outer, k);
  return grid.rows * grid.columns;
}

void PackScales(const Queue& queue, const BlockScales& x, ScaleMode mode,
                int64_t outer, float* to) {
  Launch(
      PackScalesKernel,
      static_cast<unsigned>(DivideUp(PackedScales(mode, outer, x.k), kThreads)),
      kThreads, 0, queue.stream(), x, GridOf(mode, outer, x.k), to);
}

}  // namespace onnx_fp8::cuda
