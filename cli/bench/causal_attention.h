// SPDX-License-Identifier: Apache-2.0
//
// The nodes of causal attention, for benchmarks.
#pragma once

#include "cli/bench/node_case.h"

namespace onnx_fp8 {

// The dtype that benchmarks of attention call "bf16"; kFloat for "fp32".
DType FloatNamed(const std::string& name);

struct CausalSizes {
  int64_t batch = 1, sequence = 0, heads = 0, kv_heads = 0, head_size = 0;

  // Multiplications and additions of the forward's two products, half of which
  // the mask leaves.
  double operations() const {
    return 4.0 * static_cast<double>(batch * heads * head_size) *
           static_cast<double>(sequence) * static_cast<double>(sequence) / 2;
  }
};

// The backward computes the scores again, and four products where the forward
// has two.
inline constexpr double kBackwardCost = 2.5;

// Probabilities are rounded to `dtype` before they are multiplied.
Attributes CausalAttributes(const CausalSizes& sizes, DType dtype);

NodeCase CausalAttention(const CausalSizes& sizes, DType dtype);
NodeCase CausalAttentionGrad(const CausalSizes& sizes, DType dtype);

}  // namespace onnx_fp8
