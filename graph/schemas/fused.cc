// SPDX-License-Identifier: Apache-2.0
//
// Ops that ONNX has too, but only in opsets newer than those that written
// files may ask for.
#include "graph/schemas.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

void InferSameAsFirst(Node& node) {
  node.out(0)->dtype = node.in(0)->dtype;
  node.out(0)->shape = node.in(0)->shape;
}

// y = x sigmoid(x)
constexpr char kSilu[] = R"((x) => (y) {
  s = Sigmoid (x)
  y = Mul (x, s)
})";

// y = x / sqrt(mean(x²) + epsilon) · scale, mean over the axes from `axis` on.
constexpr char kRMSNorm[] = R"((x, scale) => (y) {
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

}  // namespace

std::vector<OpDefinition> FusedOps() {
  return {
      {"RMSNorm",
       {{"axis", AttributeKind::kInt}, {"epsilon", AttributeKind::kFloat}},
       kRMSNorm,
       InferSameAsFirst},
      {"Silu", {}, kSilu, InferSameAsFirst},
  };
}

}  // namespace onnx_fp8
