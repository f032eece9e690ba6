// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/plan/plan.h"

namespace onnx_fp8 {

// Gives a cell to each amax that one kernel measures and another one uses, and
// to each that a kernel measures for itself.
void PlanAmaxes(const KernelRegistry& kernels, Plan& plan);

}  // namespace onnx_fp8
