// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/gemm.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Sets the parts that ScaledMatMul and ScaledMatMulBlock share: bias, sums and
// the result. The result keeps the leading axes of input 0, but is a matrix if
// that input is transposed. `b_k`: the size of the second operand's axis of the
// sum. REQUIRES: m, n and k are set. Errors: operands whose axes of the sum
// differ, another bias.
void SetProduct(KernelContext& ctx, const Tensor* bias, int64_t b_k,
                GemmProblem* p);

}  // namespace onnx_fp8
