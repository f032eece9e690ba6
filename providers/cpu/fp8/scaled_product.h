// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/gemm.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Sets what ScaledMatMul and ScaledMatMulBlock have in common: bias, sums and
// the result, which keeps the leading axes of input 0 unless that is
// transposed; then it is a matrix. `b_k`: what the second operand sums over.
// REQUIRES: m, n and k are set. Errors: operands that share no axis, another
// bias.
void SetProduct(KernelContext& c, const Tensor* bias, int64_t b_k,
                GemmProblem* p);

}  // namespace onnx_fp8
