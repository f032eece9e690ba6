// SPDX-License-Identifier: Apache-2.0
//
// What a .cu file sees where g++ compiles it: CUDA's device language on top of
// the toolkit's own headers. What is not here is not emulated.
//
// Kernels lie in namespace onnx_fp8: device_math.h replaces functions of the C
// library there.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulation/device_atomics.h"
#include "tests/cuda/emulation/device_launch.h"
#include "tests/cuda/emulation/device_math.h"
#include "tests/cuda/emulation/device_warps.h"

// One block runs at a time, so that its shared memory may be static
// (shared_memory.ld).
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// ---- barriers ---------------------------------------------------------------

void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);

// A thread gives way only at barriers: fences have nothing to do.
inline void __threadfence() {}
inline void __threadfence_block() {}

[[noreturn]] void __trap();

// The larger ones of both halves.
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  unsigned low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a : b;
  unsigned high = a >> 16 > b >> 16 ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
}

// ---- cp.async ---------------------------------------------------------------
// A copy is made where it is waited for. Until then NaN is there.

void __pipeline_memcpy_async(void* to, const void* from, size_t bytes,
                             size_t zeros = 0);
void __pipeline_commit();
void __pipeline_wait_prior(size_t groups);
