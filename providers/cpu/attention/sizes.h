// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "providers/kernel.h"

namespace onnx_fp8 {

// Sizes as in graph/schemas/attention.cc.
struct AttentionSizes {
  int64_t b, t, s, heads, groups, d, e;
  float scale;
  bool causal;
  DType round_to;
  // Elements of the bias from one batch, head, row, column to the next.
  int64_t bias_step[4] = {0, 0, 0, 0};

  // Number of columns that the rows before `end` see.
  int64_t Columns(int64_t end) const { return causal ? std::min(s, end) : s; }
  // The first row that sees a column at or after `column`.
  int64_t FirstRow(int64_t column) const { return causal ? column : 0; }
  int64_t Repeats() const { return heads / groups; }
};

// q, k, v are inputs `first` on; a bias follows if `biased`. Errors: operands
// that do not fit.
AttentionSizes SizesOf(const KernelContext& ctx, size_t first, bool biased);

}  // namespace onnx_fp8
