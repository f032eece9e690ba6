// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ops/attention_sizes.h"

namespace onnx_fp8 {

// Attention (q, k, v, [relative,] [bias]) -> (y, lse): operands and results of
// `ctx`. Products read elements E (operands.h).
template <typename E>
void AttentionForward(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in);

// AttentionGrad (dy, q, k, v, [relative,] [bias,] y, lse) -> (dq, dk, dv[,
// drelative]): operands and results of `ctx`. REQUIRES: no empty operand.
// Products read elements E (operands.h).
template <typename E>
void AttentionBackward(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in);

}  // namespace onnx_fp8
