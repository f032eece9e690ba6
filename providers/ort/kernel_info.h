// SPDX-License-Identifier: Apache-2.0
//
// What the runtime tells the kernel of a custom op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

std::string NodeName(const OrtKernelInfo* info);

// Attributes of the node; empty if it does not have them.
std::string StringAttribute(const OrtKernelInfo* info, const char* name);
std::vector<int64_t> IntsAttribute(const OrtKernelInfo* info, const char* name);

}  // namespace onnx_fp8
