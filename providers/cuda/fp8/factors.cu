// SPDX-License-Identifier: Apache-2.0
//
// The factors of blocks whose amaxes one kernel measures and another one uses.
// Traffic: a few floats of each block.
#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "providers/cuda/fp8/blocks.h"

namespace onnx_fp8::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) FactorsKernel(Many<Blocks> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Blocks b = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i == 0 && b.amax_out) {
    *b.amax_out = b.amax->non_finite ? std::numeric_limits<float>::infinity()
                                     : __uint_as_float(b.amax->finite);
  }
  if (!b.factors || i >= b.count) return;
  float factor = BlockFactor(b.format, b.factors[i]);
  b.factors[i] = factor;
  if (!b.scales) return;
  StoreScale(b.format, b.scales, ScaleAt(b, i / b.across, i % b.across),
             factor);
}

// Factors of a tensor.
struct Cleared {
  float* factors;
  int64_t count;
};

__global__ void __launch_bounds__(kThreads) ClearKernel(Many<Cleared> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Cleared own = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t i = block * kThreads + threadIdx.x;
  if (i < own.count) own.factors[i] = 0;
}

}  // namespace

void ClearFactors(cudaStream_t stream, std::span<const Blocks> all) {
  std::vector<Cleared> cleared;
  for (const Blocks& b : all) cleared.push_back({b.factors, FactorsOf(b)});
  ForMany(
      cleared,
      [](const Cleared& own) {
        return static_cast<unsigned>(DivideUp(own.count, kThreads));
      },
      [&](const Many<Cleared>& many) {
        Launch(ClearKernel, many.blocks, kThreads, 0, stream, many);
      });
}

void MakeFactors(cudaStream_t stream, std::span<Blocks> all) {
  // One block at least writes the amax.
  StartBlocks(stream, all, FactorsKernel, kThreads, [](const Blocks& b) {
    auto blocks = static_cast<unsigned>(DivideUp(FactorsOf(b), kThreads));
    return std::max(blocks, b.amax_out ? 1u : 0u);
  });
}

}  // namespace onnx_fp8::cuda
