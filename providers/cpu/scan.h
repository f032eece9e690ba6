// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

// The part of RegisterReduce for ops that walk along one axis: ArgMax, ArgMin,
// CumSum.
void RegisterScan(KernelRegistry& r);

}  // namespace onnx_fp8
