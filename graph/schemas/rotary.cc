// SPDX-License-Identifier: Apache-2.0
//
// Rotary positions (Su et al., "RoFormer", 2021) of heads that lie beside each
// other, as linear layers leave them. x (B,T,H·D), D even; cos and sin (N,T,D),
// where N is B or 1. Each head's row has two halves (x1, x2):
//   y = (x1, x2) cos + (-x2, x1) sin
#include <string>

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// x_4 (B,T,H,D); cos_4 and sin_4 (N,T,1,D).
constexpr char kSplitHeads[] = R"(
  zeros_1d = Constant <value_ints = [0]> ()
  two_1d = Constant <value_ints = [2]> ()
  heads_0d = Constant <value_int: int = @heads> ()
  heads = Unsqueeze (heads_0d, zeros_1d)
  shape = Shape (x)
  lead = Shape <start = 0, end = 2> (x)
  width = Shape <start = 2, end = 3> (x)
  depth = Div (width, heads)
  split = Concat <axis = 0> (lead, heads, depth)
  x_4 = Reshape <allowzero = 1> (x, split)
  cos_4 = Unsqueeze (cos, two_1d)
  sin_4 = Unsqueeze (sin, two_1d)
)";

constexpr char kRotary[] = R"(
  x1, x2 = Split <axis = -1, num_outputs = 2> (x_4)
  minus_x2 = Neg (x2)
  turned = Concat <axis = -1> (minus_x2, x1)
  straight = Mul (x_4, cos_4)
  across = Mul (turned, sin_4)
  y_4 = Add (straight, across)
  y = Reshape <allowzero = 1> (y_4, shape)
})";

// The gradient turns back: the transposed turn of u = dy sin is (u2, -u1).
constexpr char kRotaryGrad[] = R"(
  u = Mul (x_4, sin_4)
  u1, u2 = Split <axis = -1, num_outputs = 2> (u)
  minus_u1 = Neg (u1)
  across = Concat <axis = -1> (u2, minus_u1)
  straight = Mul (x_4, cos_4)
  y_4 = Add (straight, across)
  y = Reshape <allowzero = 1> (y_4, shape)
})";

// (x, cos, sin) -> y, or (dy, cos, sin) -> dx
void InferRotary(Node& node) {
  const Value *x = node.in(0), *cos = node.in(1), *sin = node.in(2);
  int64_t heads = node.Int("heads", 0);
  if (x->concrete() && cos->concrete() && sin->concrete()) {
    bool fits = heads > 0 && x->rank() == 3 && x->dim(2) % (2 * heads) == 0 &&
                cos->rank() == 3 && *cos->shape == *sin->shape &&
                (cos->dim(0) == 1 || cos->dim(0) == x->dim(0)) &&
                cos->dim(1) == x->dim(1) && cos->dim(2) == x->dim(2) / heads;
    Check(fits, "[", node.Where(),
          "] expected x (B,T,H·D), cos and sin (B or 1,T,D), got ",
          ToString(*x->shape), ToString(*cos->shape), ToString(*sin->shape),
          " and ", heads, " heads");
  }
  SameAs(x, node.out(0));
}

}  // namespace

std::vector<OpDefinition> RotaryOps() {
  static const std::string forward =
      std::string("(x, cos, sin) => (y) {") + kSplitHeads + kRotary;
  static const std::string backward =
      std::string("(x, cos, sin) => (y) {") + kSplitHeads + kRotaryGrad;
  const AttributeDefinition heads = {"heads", AttributeKind::kInt};
  constexpr OpFacts rotary = {OpKind::kOther, OpForm::kRotated,
                              Precision::kFollowsFirst, ConstantUse::kWeight,
                              Division::kEven};
  return {
      {"Rotary", {heads}, forward.c_str(), InferRotary, rotary},
      {"RotaryGrad",
       {heads},
       backward.c_str(),
       InferRotary,
       LateOp(OpKind::kOther)},
  };
}

}  // namespace onnx_fp8
