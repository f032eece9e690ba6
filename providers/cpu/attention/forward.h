// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/attention/sizes.h"

namespace onnx_fp8 {

// Attention (q, k, v[, bias]) -> (y, lse): operands and results of `ctx`.
// Products read elements E (operands.h).
template <typename E>
void AttentionForward(KernelContext& ctx, const AttentionSizes& z, bool biased);

}  // namespace onnx_fp8
