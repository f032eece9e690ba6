// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace onnx_fp8::cuda {

// The number of this process among those of its machine, as the launcher's
// variables say; 0 without one. `variable` is std::getenv but for tests.
// Errors: a variable that is no number.
int LocalRank(const std::function<const char*(const char*)>& variable);

// Makes the GPU of that number the current one, so that each process of a
// machine has its own. Errors: there are fewer GPUs.
void UseDeviceOf(int local_rank);

}  // namespace onnx_fp8::cuda
