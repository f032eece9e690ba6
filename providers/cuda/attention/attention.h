// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ops/attention_sizes.h"

namespace onnx_fp8::cuda {

// Attention (q, k, v, [relative,] [bias]) -> (y, lse): operands and results of
// `ctx`. Errors: no float operands.
void AttentionForward(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in);

// The workspace that AttentionBackward needs.
size_t BackwardWorkspace(const AttentionSizes& z);

// AttentionGrad (dy, q, k, v, [relative,] [bias,] y, lse) -> (dq, dk, dv[,
// drelative]): operands and results of `ctx`. Errors: no float operands.
void AttentionBackward(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in);

}  // namespace onnx_fp8::cuda
