// SPDX-License-Identifier: Apache-2.0
//
// Ops that the passes graph/passes/fuse_* make. ONNX has RMSNorm and Silu too,
// but only in opsets that are too new for written files.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

void InferSameAsFirst(Node& node) { SameAs(node.in(0), node.out(0)); }

// y = x sigmoid(x)
constexpr char kSilu[] = R"((x) => (y) {
  s = Sigmoid (x)
  y = Mul (x, s)
})";

// y = x sigmoid(x) · gate
constexpr char kSwiGLU[] = R"((x, gate) => (y) {
  s = Sigmoid (x)
  xs = Mul (x, s)
  y = Mul (xs, gate)
})";

// y = x / sqrt(mean(x²) + epsilon) · scale, mean over the axes from `axis` on.
constexpr char kRMSNorm[] = R"(
  axis = Constant <value_int: int = @axis> ()
  one = Constant <value_int = 1> ()
  shape = Shape (x)
  rank = Size (shape)
  first = Mod (axis, rank)
  axes = Range (first, rank, one)
  epsilon = Constant <value_float: float = @epsilon> ()
  e = CastLike (epsilon, x)
  xx = Mul (x, x)
  square = ReduceMean (xx, axes)
  shifted = Add (square, e)
  root = Sqrt (shifted)
  s = Reciprocal (root)
  h = Mul (x, s)
  y = Mul (h, scale)
})";

void InferSwiGLU(Node& node) {
  const Value *x = node.in(0), *gate = node.in(1);
  if (x->concrete() && gate->concrete()) {
    Check(*x->shape == *gate->shape, "[", node.Where(),
          "] expected operands of the same shape, got ", ToString(*x->shape),
          " and ", ToString(*gate->shape));
  }
  SameAs(x, node.out(0));
}

// x = a + b, the residual stream after a block, and its normalization.
constexpr char kAddLayerNorm[] =
    R"((a, b, scale, bias) => (x, y, mean, inv_std) {
  x = Add (a, b)
  y, mean, inv_std = LayerNormalization <axis: int = @axis, epsilon: float = @epsilon> (x, scale, bias)
})";

// (a, b, scale[, bias]) -> (x, y[, mean, inv_std])
void InferAddNorm(Node& node) {
  const Value *a = node.in(0), *b = node.in(1), *scale = node.in(2);
  if (a->concrete() && b->concrete() && scale->concrete()) {
    int64_t axis = NormalizeAxis(node.Int("axis", -1), a->rank(), node.Where());
    Shape tail(a->shape->begin() + axis, a->shape->end());
    Check(*a->shape == *b->shape && *scale->shape == tail, "[", node.Where(),
          "] expected a and b of the same shape and a scale like its last "
          "axes, got ",
          ToString(*a->shape), ToString(*b->shape), ToString(*scale->shape));
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    Value* y = node.out(i);
    if (!y) continue;
    SameAs(a, y);
    if (i < 2 || !a->concrete()) continue;
    int64_t axis = NormalizeAxis(node.Int("axis", -1), a->rank(), node.Where());
    std::fill(y->shape->begin() + axis, y->shape->end(), 1);
  }
}

}  // namespace

std::vector<OpDefinition> FusedOps() {
  const std::vector<AttributeDefinition> norm = {
      {"axis", AttributeKind::kInt}, {"epsilon", AttributeKind::kFloat}};
  static const std::string rms_norm =
      std::string("(x, scale) => (y) {") + kRMSNorm;
  static const std::string add_rms_norm =
      std::string("(a, b, scale) => (x, y) {\n  x = Add (a, b)") + kRMSNorm;
  constexpr OpFacts of_norm = {OpKind::kNorm, OpForm::kTrailing,
                               Precision::kFloat, ConstantUse::kWeight,
                               Division::kEven};
  constexpr OpFacts activation = {OpKind::kOther, OpForm::kElementwise,
                                  Precision::kFollows, ConstantUse::kWeight,
                                  Division::kUneven};
  return {
      {"AddLayerNorm", norm, kAddLayerNorm, InferAddNorm, of_norm},
      {"AddRMSNorm", norm, add_rms_norm.c_str(), InferAddNorm, of_norm},
      {"RMSNorm", norm, rms_norm.c_str(), InferSameAsFirst, of_norm},
      {"Silu", {}, kSilu, InferSameAsFirst, activation},
      {"SwiGLU", {}, kSwiGLU, InferSwiGLU, activation},
  };
}

}  // namespace onnx_fp8
