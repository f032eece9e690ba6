// SPDX-License-Identifier: Apache-2.0
//
// The language of kernels. This file alone tells nvcc from a host compiler,
// which builds the same kernels for the emulated device of the tests.
//
// Rules that keep kernels fit for that device (docs/cuda.md gives reasons):
// - Kernels are functions in unnamed namespaces of .cu files, and are started
//   by Launch. Such a file has no other static variables.
// - Dynamic shared memory comes from DynamicShared. There are no __constant__
//   and no __device__ variables.
// - Blocks never wait for each other. Atomics are of integers only, so that
//   results don't depend on the order of threads.
// - Functions of warps have full masks, but for a warp's last part of a block.
#pragma once

#if defined(__CUDACC__)
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#else
#include "device_language.h"
#endif

#include <type_traits>

#include "providers/cuda/core/check.h"

// Before a loop: all its iterations become straight code, or none. Arrays of a
// thread lie in registers only if every index into them is known.
#if defined(__CUDACC__)
#define ONNX_FP8_UNROLL _Pragma("unroll")
#define ONNX_FP8_KEEP_LOOP _Pragma("unroll 1")
#else
#define ONNX_FP8_UNROLL
#define ONNX_FP8_KEEP_LOOP
#endif

namespace onnx_fp8 {

// Puts kernel<<<grid, block, shared_bytes, stream>>>(arguments...) into the
// stream. Errors: the runtime refuses it.
template <typename... P>
void Launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, std::type_identity_t<P>... arguments) {
#if defined(__CUDACC__)
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  ONNX_FP8_CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
#else
  CheckCuda(emulation::Launch(kernel, grid, block, shared_bytes, stream,
                              arguments...),
            "cudaLaunchKernelEx");
#endif
}

// Hides from the compiler that x is what it was. So numbers that are made of x
// are made again where they are needed, and do not take registers in between.
__device__ inline void Rematerialize(uint32_t& x) {
  asm volatile("" : "+r"(x));
}

// One instruction each, without the code that keeps numbers below 2⁻¹²⁶. Such
// results are 0, and such a divisor gives Inf.

// 2^x, with an error of 2 ulp.
__device__ inline float ShortExp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// 1 / x, with an error of 1 ulp.
__device__ inline float ShortReciprocal(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __fdividef(1.0f, x);
#endif
}

// The block's dynamic shared memory, aligned to 16 bytes.
template <typename T>
__device__ T* DynamicShared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
#else
  return static_cast<T*>(emulation::DynamicShared());
#endif
}

}  // namespace onnx_fp8
