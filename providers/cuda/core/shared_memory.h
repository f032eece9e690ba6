// SPDX-License-Identifier: Apache-2.0
//
// Dynamic shared memory of more than 48 KiB, which a kernel must be granted.
#pragma once

#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

// The most bytes, static ones included, that a block can have on this device.
// Errors: the CUDA runtime's.
inline int MostShared() {
  int device = 0, bytes = 0;
  ONNX_FP8_CUDA(cudaGetDevice(&device));
  ONNX_FP8_CUDA(cudaDeviceGetAttribute(
      &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

// Lets launches of the kernel ask for `bytes` of dynamic shared memory. A
// multiprocessor that runs the kernel makes its shared memory large and its
// cache small. Errors: the device has less.
template <typename... P>
void GrantShared(void (*kernel)(P...), int bytes) {
  auto* function = reinterpret_cast<const void*>(kernel);
  ONNX_FP8_CUDA(cudaFuncSetAttribute(
      function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  ONNX_FP8_CUDA(cudaFuncSetAttribute(
      function, cudaFuncAttributePreferredSharedMemoryCarveout,
      cudaSharedmemCarveoutMaxShared));
}

}  // namespace onnx_fp8::cuda
