// SPDX-License-Identifier: Apache-2.0
//
// The masks between the product q kᵀ and the softmax of attention.
#pragma once

#include <optional>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {

// Add(scores, mask), or a Where that replaces some scores by `fill`.
struct AttentionMask {
  Value* value = nullptr;
  Value* fill = nullptr;      // null: the mask is added
  bool marks_hidden = false;  // of a Where: true marks hidden scores
  bool causal = false;        // it hides scores above the diagonal only
  double upper = 0;           // if causal: the number above the diagonal
};

// What attention needs in place of its masks.
struct MaskOperands {
  bool causal = false;
  Value* bias = nullptr;  // added to the scores
  // One bool for each row (…,T,1), false for a row that sees nothing: numbers
  // replace all scores of such a row, so its q decides nothing. Null: there is
  // no such row.
  Value* sees = nullptr;
  bool may_be_nan = false;  // a row may have nothing but -inf
};

class AttentionMasks {
 public:
  explicit AttentionMasks(const FixedValues& fixed) : fixed_(fixed) {}

  // Reads one Add or Where on the way from the softmax up to the product.
  // Returns its operand with the scores; null if the node has another form.
  Value* Read(Builder& b, const Node& node);

  // The operand `relative` of AttentionRelative; null if there is none.
  Value* relative() const { return relative_; }

  // Adds nodes for all masks that were read. nullopt: attention with these
  // operands would compute something else in rows that see nothing.
  std::optional<MaskOperands> Combine(Builder& b) const;

 private:
  Value* ReadAdd(Builder& b, const Node& node);
  Value* ReadWhere(const Node& node);
  void AddWhere(AttentionMask mask, const Value& scores);
  Value* WithoutRelative(Builder& b, Value* mask, const Value& scores);

  const FixedValues& fixed_;
  std::vector<AttentionMask> masks_;  // the outermost first
  Value* relative_ = nullptr;
};

}  // namespace onnx_fp8
