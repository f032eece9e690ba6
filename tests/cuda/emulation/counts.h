// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8::emulation {

void CountCall(const char* function);

// What follows is the traffic of this kernel.
void CountLaunch(const void* kernel);
void CountAccess(size_t bytes, bool reads, bool writes);

}  // namespace onnx_fp8::emulation
