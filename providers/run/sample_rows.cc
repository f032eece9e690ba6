// SPDX-License-Identifier: Apache-2.0
#include "providers/run/sample_rows.h"

#include <algorithm>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

int64_t FromFront(int64_t axis, const Value& of) {
  return axis < 0 ? axis + of.rank() : axis;
}

// For ops whose form says nothing.
bool KeepsShape(const Node& node, const Value& result,
                const HasSampleRows& has) {
  // The gradient of a weight has the weight's shape, which may be a batch's.
  const bool gradient = node.op.find("Grad") != std::string::npos;
  return std::ranges::any_of(node.inputs(), [&](const Value* in) {
    if (!in || !has(in)) return false;
    return gradient ? in->shape == result.shape : in->dim(0) == result.dim(0);
  });
}

bool KeepsRowsByForm(const Node& node, const Value& result,
                     const HasSampleRows& has) {
  const Value* first = node.in(0);
  const bool rows = has(first);
  const bool same = rows && first->dim(0) == result.dim(0);
  switch (FactsOf(node).form) {
    case OpForm::kElementwise:
      return std::ranges::any_of(node.inputs(), [&](const Value* in) {
        return in && has(in) && in->rank() == result.rank() &&
               in->dim(0) == result.dim(0);
      });
    case OpForm::kReshape:
      return rows;
    case OpForm::kTranspose: {
      const std::vector<int64_t> order = node.Ints("perm");
      return same && !order.empty() && order[0] == 0;
    }
    case OpForm::kAlongAxis:
    case OpForm::kConcat:
    case OpForm::kTrailing:
      return same && FromFront(node.Int("axis", -1), *first) != 0;
    case OpForm::kGather:
      return FromFront(node.Int("axis", 0), *first) == 0
                 ? node.in(1) && has(node.in(1)) &&
                       node.in(1)->dim(0) == result.dim(0)
                 : same;
    case OpForm::kGemm:
      return same && node.Int("transA", 0) == 0;
    case OpForm::kReduce:
      return same && first->rank() == result.rank();
    case OpForm::kClasses:
      return same;
    case OpForm::kAny:
      return KeepsShape(node, result, has);
    default:
      return same;
  }
}

}  // namespace

bool KeepsSampleRows(const Node& node, const Value& result, int64_t samples,
                     const HasSampleRows& has) {
  if (!node.in(0) || !result.concrete() || result.rank() == 0) return false;
  if (result.dim(0) == 0 || result.dim(0) % samples != 0) return false;
  switch (FactsOf(node).kind) {
    case OpKind::kScaledProduct:
      return has(node.in(0)) && node.Int("transA", 0) == 0 &&
             node.in(0)->dim(0) == result.dim(0);
    case OpKind::kParameterUpdate:
      return false;
    default:
      return KeepsRowsByForm(node, result, has);
  }
}

}  // namespace onnx_fp8
