// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Bytes that a step needs, its reserve included: if all that helps is computed
// again, and if nothing is.
struct NeededMemory {
  size_t least = 0, most = 0;
  size_t halfway() const { return (least + most) / 2; }
};

// What a step of `train` needs, which trains with the options that it gets. It
// gets a `memory` of one byte and is refused.
NeededMemory MemoryNeeded(
    SessionOptions options,
    const std::function<void(const SessionOptions&)>& train);

}  // namespace onnx_fp8
