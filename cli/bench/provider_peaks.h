// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "providers/provider.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

// The peaks that benchmarks compare with. The peaks of a GPU are in its data
// sheet, the peaks of a CPU are measured. The name is null if they are unknown.
GpuPeaks PeaksOf(ExecutionProvider& provider);

// "h200, 1979 TF/s in FP8, ...".
std::string TextOf(const GpuPeaks& peaks);

}  // namespace onnx_fp8
