// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8 {

// Where an operand or a result has the rows of its heads: D or E elements that
// follow each other.
struct HeadLayout {
  int64_t first = 0;                     // the first element
  int64_t batch = 0, row = 0, head = 0;  // elements from one to the next

  int64_t At(int64_t b, int64_t h, int64_t r) const {
    return first + b * batch + h * head + r * row;
  }
};

// Sizes as in graph/schemas/attention.cc.
struct AttentionSizes {
  int64_t b = 0, t = 0, s = 0, heads = 0, groups = 0, d = 0, e = 0;
  float scale = 1;
  bool causal = false;
  DType round_to = DType::kUndefined;
  HeadLayout q, k, v, y;  // and of their gradients
  Shape y_shape;
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

// Places of a node's operands: q, k, v, [relative,] [bias,] [segments,]
// [y, lse], or qkv, [bias,] [segments,] [y, lse].
struct AttentionInputs {
  size_t first = 0;  // q
  bool has_relative = false, has_bias = false;
  bool packed = false;
  bool has_segments = false;

  // Operands with gradients besides `relative`, which are the first results.
  constexpr size_t count() const { return packed ? 1 : 3; }
  // Results of the backward pass.
  constexpr size_t gradients() const {
    return count() + (has_relative ? 1 : 0);
  }
  // The operand with part 0, 1 or 2: q, k or v; and the result.
  constexpr size_t operand(size_t part) const { return first + gradient(part); }
  constexpr size_t gradient(size_t part) const { return packed ? 0 : part; }
  constexpr size_t relative() const { return first + count(); }
  constexpr size_t bias() const { return relative() + (has_relative ? 1 : 0); }
  constexpr size_t segments() const { return bias() + (has_bias ? 1 : 0); }
  constexpr size_t y() const { return segments() + (has_segments ? 1 : 0); }

  constexpr bool backward() const { return first > 0; }
  // The places of the backward pass, where dy is the first operand.
  constexpr AttentionInputs Backward() const {
    AttentionInputs in = *this;
    in.first = 1;
    return in;
  }
  // dy, and q, k and v or qkv, and y.
  std::vector<size_t> KeptNarrow() const;
  // The results of the backward pass that are kept narrow: 0 … count() - 1.
  std::vector<size_t> Gradients() const;
};

// The ops' operands (graph/schemas/attention.cc).
inline constexpr AttentionInputs
    kAttentionPlain = {},
    kAttentionBias = {.has_bias = true},
    kAttentionRelative = {.has_relative = true, .has_bias = true},
    kAttentionPacked = {.packed = true},
    kAttentionPackedBias = {.has_bias = true, .packed = true},
    kAttentionSegments = {.has_bias = true, .has_segments = true},
    kAttentionPackedSegments = {
        .has_bias = true, .packed = true, .has_segments = true};

// Errors: operands that do not fit.
AttentionSizes SizesOf(const KernelContext& ctx, const AttentionInputs& in);

}  // namespace onnx_fp8
