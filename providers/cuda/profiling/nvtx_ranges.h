// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/activity.h"

namespace onnx_fp8::cuda {

// Ranges of NVTX, which Nsight Systems and Nsight Compute show; null: no tool
// is attached to this process, or the build's toolkit has no NVTX.
HostRanges* NvtxRanges();

}  // namespace onnx_fp8::cuda
