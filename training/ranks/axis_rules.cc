// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/axis_rules.h"

#include <numeric>
#include <set>
#include <string_view>

namespace onnx_fp8 {
namespace {

using OpNames = std::set<std::string_view>;

bool IsOneOf(const Node& node, const OpNames& onnx, const OpNames& ours) {
  return node.domain.empty() ? onnx.contains(node.op)
                             : node.domain == kDomain && ours.contains(node.op);
}

bool IsKnown(const Value* value) {
  return value && value->is_constant() &&
         (value->dtype == DType::kInt64 || value->dtype == DType::kInt32);
}

}  // namespace

bool IsElementwise(const Node& node) {
  static const OpNames onnx = {
      "Abs",         "Add",       "And",      "Cast",    "Ceil",
      "Clip",        "Cos",       "Div",      "Dropout", "Elu",
      "Equal",       "Erf",       "Exp",      "Floor",   "Gelu",
      "HardSigmoid", "HardSwish", "Identity", "IsInf",   "IsNaN",
      "LeakyRelu",   "Log",       "Max",      "Min",     "Mish",
      "Mul",         "Neg",       "Not",      "Or",      "Pow",
      "Reciprocal",  "Relu",      "Round",    "Selu",    "Sigmoid",
      "Sign",        "Sin",       "Softplus", "Sqrt",    "Sub",
      "Sum",         "Swish",     "Tanh",     "Where"};
  static const OpNames ours = {"RoundTo", "Silu", "SwiGLU"};
  return IsOneOf(node, onnx, ours);
}

bool IsFiniteAtZeros(const Node& node) {
  static const OpNames onnx = {
      "Abs",         "Add",       "Cast",     "Clip",      "Concat",
      "Cos",         "Div",       "Dropout",  "Elu",       "Erf",
      "Expand",      "Flatten",   "Gather",   "Gelu",      "Gemm",
      "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "LogSoftmax",
      "MatMul",      "Max",       "Min",      "Mish",      "Mul",
      "Neg",         "Relu",      "Reshape",  "Selu",      "Sigmoid",
      "Sin",         "Slice",     "Softmax",  "Softplus",  "Split",
      "Squeeze",     "Sub",       "Sum",      "Swish",     "Tanh",
      "Transpose",   "Unsqueeze", "Where"};
  static const OpNames ours = {"CrossEntropy", "RoundTo", "Silu", "SwiGLU"};
  return IsOneOf(node, onnx, ours);
}

std::optional<std::vector<int64_t>> ListedAxes(const Node& node, size_t input,
                                               int64_t rank) {
  const Value* value = node.in(input);
  if (!IsKnown(value) || value->data.size() == 0) return std::nullopt;
  std::vector<int64_t> axes = ToInts(value->data);
  for (int64_t& axis : axes) axis = FromStart(axis, rank);
  return axes;
}

bool LeavesAxis(const Node& slice, int64_t axis) {
  const Value *x = slice.in(0), *y = slice.out(0), *steps = slice.in(4);
  // One element may come from anywhere.
  if (x->dim(axis) != y->dim(axis) || x->dim(axis) == 1) return false;
  if (!steps) return true;
  if (!IsKnown(steps)) return false;
  const std::vector<int64_t> step = ToInts(steps->data);
  std::vector<int64_t> axes(step.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (slice.in(3)) axes = ListedAxes(slice, 3, x->rank()).value_or(Shape{});
  if (axes.size() != step.size()) return false;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == axis && step[i] != 1) return false;
  }
  return true;
}

}  // namespace onnx_fp8
