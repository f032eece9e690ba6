// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/device.h"
#include "providers/cuda/gemm/k_major.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kTile = 32, kLines = 8;

struct Pack {
  Codes x;
  int64_t to_outer, to_k;
  uint8_t* to;
};

// A block moves a tile of kTile x kTile codes. Threads of a warp read neighbors
// of x, and write neighbors of the copy.
__global__ void __launch_bounds__(kTile* kLines) PackKernel(Pack p) {
  __shared__ uint8_t tile[kTile][kTile + 4];
  int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  int64_t first_outer = static_cast<int64_t>(blockIdx.x) * kTile;
  int64_t first_k = static_cast<int64_t>(blockIdx.y) * kTile;
  int64_t row = p.x.k_is_rows ? first_k : first_outer;
  int64_t column = (p.x.k_is_rows ? first_outer : first_k) + lane;
  for (int i = line; i < kTile; i += kLines) {
    bool inside = row + i < p.x.rows && column < p.x.columns;
    tile[i][lane] = inside ? p.x.data[(row + i) * p.x.columns + column] : 0;
  }
  __syncthreads();
  for (int i = line; i < kTile; i += kLines) {
    int64_t outer = first_outer + i, k = first_k + lane;
    if (outer >= p.to_outer || k >= p.to_k) continue;
    p.to[outer * p.to_k + k] = p.x.k_is_rows ? tile[lane][i] : tile[i][lane];
  }
}

}  // namespace

void PackKMajor(const Queue& queue, const Codes& x, int64_t to_outer,
                int64_t to_k, uint8_t* to) {
  dim3 tiles(static_cast<unsigned>(DivideUp(to_outer, kTile)),
             static_cast<unsigned>(DivideUp(to_k, kTile)));
  Launch(PackKernel, tiles, kTile * kLines, 0, queue.stream(),
         Pack{x, to_outer, to_k, to});
}

}  // namespace onnx_fp8::cuda
