// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

// Leaves a bad value for the host, which reports it when it next waits. The
// first one counts.
__device__ inline void Complain(Complaint* to, uint32_t message,
                                int64_t value) {
  if (atomicCAS(&to->message, 0u, message) == 0u) to->value = value;
}

}  // namespace onnx_fp8::cuda
