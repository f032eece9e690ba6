// SPDX-License-Identifier: Apache-2.0
//
// One kernel for many tensors: each block works on one of them. Descriptions of
// the tensors are an argument of the kernel, so nothing is copied before it
// starts.
#pragma once

#include <cstddef>
#include <type_traits>

#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

// As many descriptions as fit into the arguments of one kernel.
template <typename T>
struct Many {
  static constexpr size_t kMost = 3840 / (sizeof(T) + sizeof(unsigned));

  int count = 0;
  unsigned blocks = 0;
  unsigned begin[kMost];  // the first block of each tensor
  T tensors[kMost];

  bool full() const { return static_cast<size_t>(count) == kMost; }
  // REQUIRES: not full.
  void Add(const T& tensor, unsigned its_blocks) {
    begin[count] = blocks;
    tensors[count++] = tensor;
    blocks += its_blocks;
  }
};

// This block's number, if blocks are counted from the last one. A kernel that
// reads tensors again begins where the kernel before it ended: a cache still
// holds their last elements.
__device__ inline unsigned BlockFromEnd() { return gridDim.x - 1 - blockIdx.x; }

// Which tensor a block works on. The search reads the kernel's arguments only.
template <typename T>
__device__ int TensorOf(const Many<T>& many, unsigned block) {
  int low = 0, high = many.count - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (many.begin[middle] <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The number of blocks of a tensor.
template <typename T>
__device__ unsigned BlocksOf(const Many<T>& many, int tensor) {
  unsigned end = tensor + 1 < many.count ? many.begin[tensor + 1] : many.blocks;
  return end - many.begin[tensor];
}

// Calls start(many) for all tensors, as many at a time as fit. A tensor of
// which blocks_of() is 0 is left out.
template <typename Tensors, typename BlocksOfTensor, typename Start>
void ForMany(const Tensors& tensors, BlocksOfTensor blocks_of, Start start) {
  using T = std::remove_const_t<typename Tensors::value_type>;
  Many<T> many;
  for (const T& tensor : tensors) {
    unsigned blocks = blocks_of(tensor);
    if (blocks == 0) continue;
    if (many.full()) {
      start(many);
      many = {};
    }
    many.Add(tensor, blocks);
  }
  if (many.count > 0) start(many);
}

}  // namespace onnx_fp8::cuda
