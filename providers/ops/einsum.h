// SPDX-License-Identifier: Apache-2.0
//
// Einstein sums: each element of the result is the sum, over all other labels,
// of the product of the operands.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8 {

// The loops: first the axes of the result, then the summed labels. strides[k]
// has operand k's stride per loop.
struct EinsumLoops {
  Shape size;
  size_t result_rank;
  std::vector<std::vector<int64_t>> strides;

  Shape Result() const {
    return {size.begin(), size.begin() + static_cast<long>(result_rank)};
  }
};

// The loops of an Einsum node. Errors: an equation that does not fit its
// operands.
EinsumLoops EinsumLoopsOf(const KernelContext& ctx);

// Loops that are packed together for a matrix product, and their strides in
// both operands and in the result.
struct LoopGroup {
  Shape size;
  std::vector<int64_t> a, b, y;

  void Add(const LoopGroup& other);
};

// y (batch…, m…, n…) = Σ_k a (batch…, m…, k…) · b (batch…, k…, n…); each group
// is a set of loops in any order.
struct EinsumProduct {
  LoopGroup of_a, of_b, of_y;
  int64_t batch, m, n, k;
};

// None if there are not two operands, or the equation has another form: a label
// that is summed in one operand only, or a size of 0.
std::optional<EinsumProduct> EinsumProductOf(const EinsumLoops& loops);

}  // namespace onnx_fp8
