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

  // The first element of a head's bias.
  int64_t BiasAt(int64_t batch, int64_t head) const {
    return batch * bias_step[0] + head * bias_step[1];
  }
  // Number of columns that the rows before `end` see.
  int64_t Columns(int64_t end) const { return causal ? std::min(s, end) : s; }
  // The first row that sees a column at or after `column`.
  int64_t FirstRow(int64_t column) const { return causal ? column : 0; }
  // Elements of a head's row of `relative`, and the one of row 0 and column 0.
  int64_t Distances() const { return t + s - 1; }
  int64_t Origin() const { return t - 1; }
  int64_t Repeats() const { return heads / groups; }
};

// Places of a node's operands: q, k, v, [relative,] [bias,] [y, lse].
struct AttentionInputs {
  size_t first = 0;  // q
  bool has_relative = false, has_bias = false;

  size_t relative() const { return first + 3; }
  size_t bias() const { return first + 3 + (has_relative ? 1 : 0); }
  size_t y() const { return bias() + (has_bias ? 1 : 0); }
};

// Errors: operands that do not fit.
AttentionSizes SizesOf(const KernelContext& ctx, const AttentionInputs& in);

}  // namespace onnx_fp8
