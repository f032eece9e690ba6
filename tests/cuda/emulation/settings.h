// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8::emulation {

// A draw of the schedule, less than `below`.
uint32_t Random(uint32_t below);

}  // namespace onnx_fp8::emulation
