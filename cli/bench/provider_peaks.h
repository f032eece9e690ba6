// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "providers/provider.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

// The peaks that benchmarks compare with: a GPU's from its data sheet, a CPU's
// measured. No name: not known.
GpuPeaks PeaksOf(ExecutionProvider& provider);

// "h200, 1979 TF/s in FP8, ...".
std::string TextOf(const GpuPeaks& peaks);

}  // namespace onnx_fp8
