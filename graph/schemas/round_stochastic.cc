// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding of a float tensor to bfloat16, with draws that a counter
// hash makes (base/stochastic_rounding.h has its code).
#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/draws.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// |x| is some units, 2^-7 of the power of two in |x|. All is exact in double.
constexpr char kRound[] = R"(
  to_unit = Constant <value = double {0.0078125}> ()
  unit = Mul (power, to_unit)
  units = Div (magnitude, unit)
  moved = Add (units, share)
  kept = Floor (moved)
  rounded = Mul (kept, unit)
  largest = Constant <value = double {3.3895313892515355e+38}> ()
  finite = Min (rounded, largest)
  zero_d = Constant <value = double {0.0}> ()
  is_negative = Less (x_d, zero_d)
  negated = Neg (finite)
  signed_d = Where (is_negative, negated, finite)
  signed_f = Cast <to: int = 1> (signed_d)
  nothing = Sub (x_d, x_d)
  is_finite = Equal (nothing, zero_d)
  is_zero = Equal (x_d, zero_d)
  is_number = Not (is_zero)
  takes = And (is_finite, is_number)
  chosen = Where (takes, signed_f, flat)
  shape = Shape (x)
  shaped = Reshape <allowzero = 1> (chosen, shape)
  y = Cast <to: int = 16> (shaped)
})";

const std::string& Body() {
  static const std::string body =
      Concat("(x, seed, update) => (y) {", DrawText(), R"(
  flat = Reshape (x, all)
  x_d = Cast <to: int = 11> (flat)
  magnitude = Abs (x_d)
)",
             PowerOfTwoText(-126, 8), kRound);
  return body;
}

void Infer(Node& node) {
  CheckArity(node, 3, 1);
  Check(node.in(0)->dtype == DType::kFloat, "[", node.Where(),
        "] expected float, got ", Name(node.in(0)->dtype));
  CheckDraws(node, 1);
  SameAs(node.in(0), node.out(0));
  node.out(0)->dtype = DType::kBFloat16;
}

}  // namespace

std::vector<OpDefinition> RoundStochasticOps() {
  // y: x as bfloat16, rounded to one of its two neighbors. `seed`: the seed of
  // the run, at least 0; `update`: the number of the update.
  return {{"RoundStochastic", DrawAttributes(), Body().c_str(), Infer,
           LateOp(OpKind::kOther)}};
}

}  // namespace onnx_fp8
