// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Runs `rank` in `size` child processes, each with the communicator of its
// rank. A rank whose gtest checks fail prints them. Returns the errors of the
// ranks, in their order, each as "rank 1: …\n".
std::string RunProcesses(int size,
                         const std::function<void(Communicator&)>& rank);

}  // namespace onnx_fp8
