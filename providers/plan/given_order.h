// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "providers/plan/plan_memory.h"

namespace onnx_fp8 {

// The order of the graph, 0 … steps-1, except for steps that free memory early
// (free_early.h).
std::vector<int> GivenOrder(const std::vector<Memory>& memories,
                            const std::vector<Assignment>& assignments,
                            size_t steps);

}  // namespace onnx_fp8
