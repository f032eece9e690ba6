// SPDX-License-Identifier: Apache-2.0
//
// The amax of a tensor, measured while a kernel writes it. The bits of floats
// that are not negative are ordered like the numbers, so the maximum is one of
// integers, and does not depend on the order of threads.
#pragma once

#include <cstdint>

#include "providers/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/queue.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// In an AmaxCell: the bits of the largest finite |x|, and 1 if any x is NaN or
// infinite.
struct DeviceAmax {
  uint32_t finite, non_finite;
};
static_assert(sizeof(DeviceAmax) <= sizeof(AmaxCell));

// The cell of result i, which the executor has cleared; null if nobody asks for
// it.
inline DeviceAmax* ClearedAmax(const KernelContext& ctx, size_t i) {
  return reinterpret_cast<DeviceAmax*>(ctx.Measured(i));
}

// What one thread has seen.
struct AmaxPart {
  uint32_t finite = 0, non_finite = 0;

  __device__ void Add(float x) {
    uint32_t magnitude = __float_as_uint(x) & 0x7FFFFFFFu;
    if (magnitude > 0x7F7FFFFFu) {
      non_finite = 1;
    } else if (magnitude > finite) {
      finite = magnitude;
    }
  }

  // The same for four numbers. This takes few instructions if all are finite.
  __device__ void Add4(const float (&x)[4]) {
    uint32_t largest = 0;
    for (float v : x) {
      uint32_t magnitude = __float_as_uint(v) & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest <= 0x7F7FFFFFu) {
      finite = largest > finite ? largest : finite;
      return;
    }
    for (float v : x) Add(v);
  }

  // Adds the parts of a warp to `cell`, unless it is null. All lanes call it.
  __device__ void AddTo(DeviceAmax* cell) const {
    if (!cell) return;
    constexpr unsigned kAll = 0xFFFFFFFFu;
    uint32_t largest = __reduce_max_sync(kAll, finite);
    bool any = __any_sync(kAll, non_finite != 0);
    if (threadIdx.x % 32 != 0) return;
    if (largest > 0) atomicMax(&cell->finite, largest);
    if (any) atomicOr(&cell->non_finite, 1u);
  }

  // Adds the parts of a block to `cell`, unless it is null. All threads call
  // it. A GPU changes one number two times in a nanosecond at best: a large
  // tensor has too many warps for AddTo.
  __device__ void AddOfBlock(DeviceAmax* cell) const {
    if (!cell) return;
    constexpr unsigned kAll = 0xFFFFFFFFu;
    __shared__ uint32_t largest[32], any[32];
    unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    uint32_t of_warp = __reduce_max_sync(kAll, finite);
    bool any_of_warp = __any_sync(kAll, non_finite != 0);
    if (lane == 0) {
      largest[threadIdx.x / 32] = of_warp;
      any[threadIdx.x / 32] = any_of_warp;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      AmaxPart whole;
      if (lane < warps) whole = {largest[lane], any[lane]};
      whole.AddTo(cell);
    }
    __syncthreads();  // before the next call
  }
};

}  // namespace onnx_fp8::cuda
