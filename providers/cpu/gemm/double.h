// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/gemm.h"

namespace onnx_fp8 {

// A product of doubles, on the calling thread's share of the pool. Models in
// double and finite differences need it to be correct, not fast.
void DoubleGemm(const GemmProblem& problem);

}  // namespace onnx_fp8
