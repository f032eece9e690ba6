// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/gemm/gemm.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// What input 4 is: a row that is added to each row of the product, or a tensor
// like the product that is added to it.
enum class Addend { kNone, kBias, kSum };

// Sets the parts that ScaledMatMul and ScaledMatMulBlock share: addend, sums
// and the result. The result keeps the leading axes of input 0, but is a matrix
// if that input is transposed. `b_k`: the size of the second operand's axis of
// the sum. REQUIRES: m, n and k are set. Errors: operands whose axes of the sum
// differ, another addend.
void SetProduct(KernelContext& ctx, Addend addend, int64_t b_k, GemmProblem* p);

}  // namespace onnx_fp8
