// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8 {

// The emulated GPU has that much memory while this lives.
struct MemoryLimit {
  explicit MemoryLimit(size_t bytes) { emulation::SetMemoryLimit(bytes); }
  ~MemoryLimit() { emulation::SetMemoryLimit(before); }
  size_t before = emulation::TotalMemory();
};

}  // namespace onnx_fp8
