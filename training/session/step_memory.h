// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "providers/provider.h"
#include "training/session/plan_cache.h"

namespace onnx_fp8 {

// The bytes that planned steps need of a device's memory.
struct StepMemory {
  size_t arena = 0;   // results and workspaces: one block, which they share
  size_t state = 0;   // parameters, moments, scales; shared by name
  size_t others = 0;  // batches, constants and outputs of each

  size_t total() const { return arena + state + others; }
};

// Of the plans and of the next one.
StepMemory MemoryOf(const PlanCache& plans, const PlannedStep& next);

// "a step needs …; the GPU had …". Errors: it had too little.
std::string CheckRoom(const StepMemory& steps, const DeviceMemory& device);

}  // namespace onnx_fp8
