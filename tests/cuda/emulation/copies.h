// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace onnx_fp8::emulation {

// `height` rows of `width` bytes.
struct CopyRequest {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0, height = 1;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  bool async = true;

  size_t to_bytes() const { return (height - 1) * to_pitch + width; }
  size_t from_bytes() const { return (height - 1) * from_pitch + width; }
};

// Puts the copy into the stream. Reports what a real device does without a
// word, such as that a copy of pageable memory is not asynchronous.
cudaError_t EnqueueCopy(const CopyRequest& copy, cudaStream_t stream);

cudaError_t EnqueueFill(void* to, int value, size_t bytes, cudaStream_t stream);

}  // namespace onnx_fp8::emulation
