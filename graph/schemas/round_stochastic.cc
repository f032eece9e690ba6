// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding of a float tensor to bfloat16, with draws that a counter
// hash makes (base/stochastic_rounding.h has its code).
#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// y = mix(x): both have 32 bits in an int64, so no product overflows. A factor
// of 2^31 or more is given less 2^32.
std::string Mix(const std::string& x, const std::string& y) {
  const std::string t = y + "_";
  return Concat(t, "1 = Div (", x, ", two16)\n", t, "2 = BitwiseXor (", x, ", ",
                t, "1)\n", t, "3 = Mul (", t, "2, factor1)\n", t,
                "4 = BitwiseAnd (", t, "3, low)\n", t, "5 = Div (", t,
                "4, two15)\n", t, "6 = BitwiseXor (", t, "4, ", t, "5)\n", t,
                "7 = Mul (", t, "6, factor2)\n", t, "8 = BitwiseAnd (", t,
                "7, low)\n", t, "9 = Div (", t, "8, two16)\n", y,
                " = BitwiseXor (", t, "8, ", t, "9)\n");
}

constexpr char kConstants[] = R"((x, seed, update) => (y) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  all = Constant <value_ints: ints = [-1]> ()
  two15 = Constant <value_int: int = 32768> ()
  two16 = Constant <value_int: int = 65536> ()
  two32 = Constant <value_int: int = 4294967296> ()
  low = Constant <value_int: int = 4294967295> ()
  factor1 = Constant <value_int: int = 2146121005> ()
  factor2 = Constant <value_int: int = -2073254261> ()
  stream = Constant <value_int: int = @stream> ()
  shift = Constant <value_int: int = @shift> ()
  run = Constant <value_int: int = @run> ()
  stride = Constant <value_int: int = @stride> ()
  begin = Constant <value_int: int = @begin> ()
  seed_low = BitwiseAnd (seed, low)
  seed_high = Div (seed, two32)
  update_low = BitwiseAnd (update, low)
  in1 = BitwiseXor (seed_low, stream)
)";

// The place of each element in the whole tensor.
constexpr char kPlaces[] = R"(
  flat = Reshape (x, all)
  size = Size (x)
  own = Range (zero, size, one)
  i = Add (own, shift)
  runs = Div (i, run)
  inside = Mod (i, run)
  ahead = Mul (runs, stride)
  from = Add (ahead, begin)
  place = Add (from, inside)
  place_high = Div (place, two32)
  place_low = BitwiseAnd (place, low)
)";

// |x| is some units, 2^-7 of the power of two in |x| (Rump, Ogita and Oishi
// 2008, Algorithm 3.5, which is exact in double for all floats), at least
// bfloat16's smallest number. All that follows is exact in double, too.
constexpr char kRound[] = R"(
  part16 = Div (draw, two16)
  draw_d = Cast <to: int = 11> (part16)
  scale16 = Constant <value = double {1.52587890625e-05}> ()
  share = Mul (draw_d, scale16)
  x_d = Cast <to: int = 11> (flat)
  magnitude = Abs (x_d)
  phi = Constant <value = double {4503599627370497}> ()
  below_one = Constant <value = double {0.9999999999999999}> ()
  q = Mul (magnitude, phi)
  q_down = Mul (q, below_one)
  power = Sub (q, q_down)
  to_unit = Constant <value = double {0.0078125}> ()
  unit_or_less = Mul (power, to_unit)
  least = Constant <value = double {9.183549615799121e-41}> ()
  unit = Max (unit_or_less, least)
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
  static const std::string body = Concat(
      kConstants, Mix("in1", "key1"), "in2 = BitwiseXor (seed_high, key1)\n",
      Mix("in2", "key2"), "in3 = BitwiseXor (update_low, key2)\n",
      Mix("in3", "key3"), kPlaces, "in4 = BitwiseXor (place_high, key3)\n",
      Mix("in4", "key4"), "in5 = BitwiseXor (place_low, key4)\n",
      Mix("in5", "draw"), kRound);
  return body;
}

void Infer(Node& node) {
  Check(node.inputs().size() == 3 && node.in(0) && node.in(1) && node.in(2),
        "[", node.Where(), "] expected x, seed and update");
  Check(node.in(0)->dtype == DType::kFloat, "[", node.Where(),
        "] expected float, got ", Name(node.in(0)->dtype));
  for (size_t i : {1, 2}) {
    const Value& x = *node.in(i);
    Check(x.dtype == DType::kInt64 && (!x.shape || x.shape->empty()), "[",
          node.Where(), "] expected an int64 of rank 0, got ", x.name);
  }
  Check(node.Int("run", 0) > 0 && node.Int("shift", -1) >= 0 &&
            node.Int("stride", -1) >= 0 && node.Int("begin", -1) >= 0,
        "[", node.Where(),
        "] expected a run from 1 on, and a shift, a stride "
        "and a begin from 0 on");
  SameAs(node.in(0), node.out(0));
  node.out(0)->dtype = DType::kBFloat16;
}

}  // namespace

std::vector<OpDefinition> RoundStochasticOps() {
  constexpr AttributeKind kInt = AttributeKind::kInt;
  // y: x as bfloat16, rounded to one of its two neighbors. `seed`, from 0 on,
  // is the run's, `update` the number of the update, `stream` (32 bits) the
  // tensor's; the others are ElementPlaces.
  return {{"RoundStochastic",
           {{"stream", kInt},
            {"shift", kInt},
            {"run", kInt},
            {"stride", kInt},
            {"begin", kInt}},
           Body().c_str(),
           Infer,
           LateOp(OpKind::kOther)}};
}

}  // namespace onnx_fp8
