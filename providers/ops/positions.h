// SPDX-License-Identifier: Apache-2.0
//
// Sizes of ops that deal with positions.
#pragma once

#include "providers/ops/arguments.h"

namespace onnx_fp8 {

// indices (outer, inner) → y (outer, depth, inner)
struct OneHotSizes {
  int64_t depth, inner;
  Shape y;
};

// Errors: a depth below 0; operands that do not fit.
OneHotSizes OneHotSizesOf(const KernelContext& ctx);

// The diagonal of Trilu, as if x had no columns beyond the first ones that it
// can reach. Errors: x has fewer than two axes.
int64_t DiagonalOf(const KernelContext& ctx);

// x (outer, n, inner) → values and places (outer, k, inner)
struct TopKSizes {
  int64_t k;
  AxisView x;
  Shape y;
};

// Errors: k is not in 0 … n.
TopKSizes TopKSizesOf(const KernelContext& ctx);

}  // namespace onnx_fp8
