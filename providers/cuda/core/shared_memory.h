// SPDX-License-Identifier: Apache-2.0
//
// Dynamic shared memory of more than 48 KiB, which a kernel must be granted.
#pragma once

#include <cstddef>

#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

// The most bytes, static ones included, that a block can have on this device.
// Errors: those of the CUDA runtime.
inline int MostShared() {
  int device = 0, bytes = 0;
  ONNX_FP8_CUDA(cudaGetDevice(&device));
  ONNX_FP8_CUDA(cudaDeviceGetAttribute(
      &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

// Lets launches of the kernel ask for so many bytes. Errors: the device has
// less.
template <typename... P>
void GrantShared(void (*kernel)(P...), size_t bytes) {
  ONNX_FP8_CUDA(cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel),
      cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace onnx_fp8::cuda
