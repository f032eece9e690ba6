// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/transpose_tile.h"
#include "providers/cuda/gemm/k_major.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kPadThreads = 256;

struct Pack {
  Codes x;
  bool words;  // rows of x are whole words in memory
  int64_t to_outer, to_k;
  uint8_t* to;
};

// Four codes of a row from `column` on, the first one in the lowest byte; 0 for
// codes outside x.
__device__ uint32_t ReadWord(const Pack& p, int64_t row, int64_t column) {
  const Codes& x = p.x;
  if (row >= x.rows || column >= x.columns) return 0;
  const uint8_t* from = x.data + row * x.columns + column;
  if (p.words) return *reinterpret_cast<const uint32_t*>(from);
  uint32_t word = 0;
  for (int i = 0; i < kCodes; ++i) {
    if (column + i < x.columns) word |= uint32_t{from[i]} << (8 * i);
  }
  return word;
}

__device__ void WriteWord(const Pack& p, int64_t outer, int64_t k,
                          uint32_t word) {
  if (outer >= p.to_outer || k >= p.to_k) return;
  *reinterpret_cast<uint32_t*>(p.to + outer * p.to_k + k) = word;
}

__global__ void __launch_bounds__(kTransposeThreads) TransposeKernel(Pack p) {
  TransposeTile(
      blockIdx.x, blockIdx.y,
      [&](int64_t k, int64_t outer) { return ReadWord(p, k, outer); },
      [&](int64_t outer, int64_t k, uint32_t word) {
        WriteWord(p, outer, k, word);
      });
}

// Adds zeros only.
__global__ void __launch_bounds__(kPadThreads) PadKernel(Pack p) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kPadThreads + threadIdx.x;
  int64_t words = p.to_k / kCodes;
  int64_t outer = at / words, k = at % words * kCodes;
  if (outer < p.to_outer) WriteWord(p, outer, k, ReadWord(p, outer, k));
}

}  // namespace

void PackKMajor(const Queue& queue, const Codes& x, int64_t to_outer,
                int64_t to_k, uint8_t* to) {
  auto address = reinterpret_cast<uintptr_t>(x.data);
  bool words = address % kCodes == 0 && x.columns % kCodes == 0;
  Pack pack = {x, words, to_outer, to_k, to};
  if (x.k_is_rows) {
    Launch(TransposeKernel, TransposeTiles(to_k, to_outer), kTransposeThreads,
           0, queue.stream(), pack);
  } else {
    int64_t count = to_outer * (to_k / kCodes);
    Launch(PadKernel, static_cast<unsigned>(DivideUp(count, kPadThreads)),
           kPadThreads, 0, queue.stream(), pack);
  }
}

}  // namespace onnx_fp8::cuda
