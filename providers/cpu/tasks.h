// SPDX-License-Identifier: Apache-2.0
// The amount of work in a task of ParallelFor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel.h"

namespace onnx_fp8 {

// Elements per task: at a nanosecond each, some 10 times what it costs to start
// a task.
inline constexpr int64_t kGrain = 16384;

// Rows per task, if a row has that many elements.
inline int64_t RowsPerTask(int64_t elements) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(elements, 1), 1);
}

}  // namespace onnx_fp8
