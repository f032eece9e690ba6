// SPDX-License-Identifier: Apache-2.0
//
// Values whose number of rows data decide. Internal to the walk of Specialize.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/builder.h"
#include "graph/evaluator.h"

namespace onnx_fp8 {

// NonZero, Compress and Unique of computed values have results of a size that
// data decide. Here they get as many rows as there may be at most, and a mask
// that says which of them exist: the others repeat row 0. Ops that treat each
// row by itself are copied as they are. Reductions leave out the rows that do
// not exist, and a Scatter drops them. All nodes become ordinary ONNX ops.
class BoundedRows {
 public:
  BoundedRows(Graph& out, const Evaluator& evaluator)
      : out_(out), evaluator_(evaluator) {}

  // True if the node makes such rows or reads them. `in`: its operands in the
  // new graph.
  bool Concerns(const Node& node, const std::vector<Value*>& in) const;
  // Adds nodes in place of this one; returns its results. REQUIRES: Concerns.
  // Errors: an op for which there is no rule.
  std::vector<Value*> Visit(const Node& node, const std::vector<Value*>& in);
  // The node that decides the number of rows; empty if the value is an ordinary
  // one.
  std::string DecidedBy(const Value* value) const;

 private:
  struct Group {
    Value* exists;  // bool [bound]
    Value* count;   // int64 [1]
    int64_t bound;
    std::string where;  // the node that made it
  };
  struct Rows {
    int64_t axis;
    size_t group;
    bool operator==(const Rows&) const = default;
  };
  using Values = std::vector<Value*>;
  using Rule = Values (BoundedRows::*)(const Node&, const Values&);
  // The rule of the node's op, or of its form; null: there is none.
  static Rule RuleOf(const Node& node);

  const Rows* Find(const Value* value) const;
  Value* Mark(Value* value, Rows rows);
  const Group& GroupOf(const Rows& rows) const { return groups_[rows.group]; }
  Builder BuilderFor(const Node& node) const;
  // The node on `in`, all of whose results have rows along `axis`.
  Values Copy(const Node& node, const Values& in);
  // x with `fill` in the rows that do not exist.
  Value* WithFill(Builder& b, Value* x, double fill);
  // A group with the places of the flags (bool [n]) that are set.
  Rows Places(const Node& node, Builder& b, Value* flags, Value** places);
  Value* WithBounds(Builder& b, Value* sizes);
  // Indices into the axes of x from `axis` on; negative indices count from the
  // last row that exists.
  Value* FromFront(Builder& b, Value* indices, const Value* x, int64_t axis,
                   int64_t axes);
  [[noreturn]] void Refuse(const Node& node, const std::string& why = "") const;

  Values NonZero(const Node& node, const Values& in);
  Values Compress(const Node& node, const Values& in);
  Values Unique(const Node& node, const Values& in);
  Values ShapeOf(const Node& node, const Values& in);
  Values MoveSizes(const Node& node, const Values& in);
  Values Count(const Node& node, const Values& in);
  Values Elementwise(const Node& node, const Values& in);
  Values Reshape(const Node& node, const Values& in);
  Values Transpose(const Node& node, const Values& in);
  Values Slice(const Node& node, const Values& in);
  Values Expand(const Node& node, const Values& in);
  Values Concat(const Node& node, const Values& in);
  Values AlongAxis(const Node& node, const Values& in);
  Values Norm(const Node& node, const Values& in);
  Values Reduce(const Node& node, const Values& in);
  Values ArgExtreme(const Node& node, const Values& in);
  Values MatMul(const Node& node, const Values& in);
  Values Gemm(const Node& node, const Values& in);
  Values Gather(const Node& node, const Values& in);
  Values GatherND(const Node& node, const Values& in);
  Values ScatterElements(const Node& node, const Values& in);
  Values ScatterND(const Node& node, const Values& in);
  Values Loss(const Node& node, const Values& in);

  Graph& out_;
  const Evaluator& evaluator_;
  std::vector<Group> groups_;
  std::unordered_map<const Value*, Rows> rows_;
  // Mask → places of its set flags, so that one mask makes one group.
  std::unordered_map<const Value*, Value*> of_mask_;
  // Sizes (int64). A size that is a group's count is the number kTag - group.
  std::unordered_map<const Value*, Tensor> sizes_;
};

}  // namespace onnx_fp8
