// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8::emulation {

void CountCall(const char* function);

// The kernel enters the stream of this number.
void CountStream(const void* kernel, uint32_t stream);

// What follows is the traffic of this kernel.
void CountLaunch(const void* kernel);
void CountAccess(size_t bytes, bool reads, bool writes);

}  // namespace onnx_fp8::emulation
