// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "providers/provider.h"
#include "training/plan_cache.h"

namespace onnx_fp8 {

// What the planned steps need, beside the memory of the device: "a step needs
// 12 MiB for results …".
std::string MemoryRemark(const PlanCache& plans, const DeviceMemory& memory);

}  // namespace onnx_fp8
