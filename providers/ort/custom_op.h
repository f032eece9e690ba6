// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// A custom op of the runtime: a table of functions. The base fills in the
// entries that are the same for all of ours: version, the CPU, operands of any
// type, lists of operands and results of any length from 1 on.
struct CustomOp : OrtCustomOp {
  CustomOp();
};

// What the runtime tells the kernel of a custom op.

std::string NodeName(const OrtKernelInfo* info);

// Attributes of the node; empty if it does not have them.
std::string StringAttribute(const OrtKernelInfo* info, const char* name);
std::vector<int64_t> IntsAttribute(const OrtKernelInfo* info, const char* name);

}  // namespace onnx_fp8
