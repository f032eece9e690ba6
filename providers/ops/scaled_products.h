// SPDX-License-Identifier: Apache-2.0
//
// Ops around FP8 products, as passes and kernels see them.
#pragma once

#include <algorithm>

#include "graph/graph.h"
#include "graph/op_facts.h"
#include "graph/schemas/quantize_padded.h"

namespace onnx_fp8 {

inline constexpr size_t kCodeOperands[] = {0, 2};  // the others are scales
// Result of a quantizer that writes both orientations.
inline constexpr size_t kTransposedCodes = 3;
// Result of QuantizeBlockTranspose: the scales of the transpose.
inline constexpr size_t kTransposedScales = 4;

// The result with the sums of the operand's columns; 0: no such result.
inline size_t ColumnSumsOf(const Node& node) {
  return FactsOf(node).column_sums;
}

// Whether a scale is known before the step: state, or an element of it.
inline bool IsGiven(const Value* scale) {
  const Node* producer = scale->producer;
  if (!producer) return true;
  return std::ranges::all_of(producer->inputs(),
                             [](const Value* x) { return x && !x->producer; });
}

// Whether one kernel quantizes rows and columns in parts of that many elements
// (QuantizeBlockTranspose); 0: whole ones.
inline bool IsPartOfBoth(int64_t block) {
  return block == 0 || block == 32 || block == 64 || block == 128;
}

inline bool IsScaledMatMul(const Node& node) {
  return node.IsOurs("ScaledMatMul") || node.IsOurs("ScaledMatMulBias");
}

// Whether K runs along the rows of memory of code operand i.
inline bool IsKMajor(const Node& product, size_t i) {
  return i == 0 ? product.Int("transA", 0) == 0 : product.Int("transB", 0) != 0;
}

// (rows, columns) of codes in memory: all axes but the last are joined. Empty
// if a size is not known or 0.
inline Shape CodeMatrix(const Value& codes) {
  if (!codes.concrete() || codes.rank() < 2) return {};
  int64_t all = NumElements(*codes.shape);
  return all == 0 ? Shape{} : Shape{all / codes.dim(-1), codes.dim(-1)};
}

// Whether a GPU can't multiply the matrix of that shape as it is.
inline bool NeedsZeros(const Shape& matrix) {
  for (int64_t size : matrix) {
    if (size % kFp8Unit != 0) return true;
  }
  return false;
}

}  // namespace onnx_fp8
