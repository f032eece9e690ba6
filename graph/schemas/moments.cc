// SPDX-License-Identifier: Apache-2.0
//
// Moments of an optimizer as float8e4m3 codes, with a float scale for each
// block of 128 elements along the last axis (base/moment_codes.h). The last
// block of a row is shorter if the row ends.
//   scale = max(amax / 448, 2^-126), amax over finite elements of a block
//   DecodeMoment        x = code · scale, and its square with `squared`
//   EncodeMoment        code = x / scale, to the nearest, at most ±448
//   EncodeSecondMoment  the same of sqrt(x), rounded stochastically; a positive
//                       x gets a positive code
// A NaN has the code 0x7F. A mean of squares may be infinite, as the square of
// a finite gradient may: it has the code 0x7F, too, and is infinite again when
// it is decoded. So other elements of its block don't suffer. With `ok` false,
// results are the old codes and scales.
#include "base/check.h"
#include "graph/moment_shapes.h"
#include "graph/schemas.h"
#include "graph/schemas/draws.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// block: the block of each index of x's last axis.
std::string BlockText(const std::string& x) {
  return Concat(R"(
  i0 = Constant <value_int: int = 0> ()
  i1 = Constant <value_int: int = 1> ()
  length = Constant <value_int: int = 128> ()
  columns_list = Shape <start = -1> ()",
                x, R"()
  columns = ReduceProd <keepdims = 0> (columns_list)
  own_column = Range (i0, columns, i1)
  block = Div (own_column, length)
)");
}

constexpr char kDecodeEnd[] = R"(
  spread = Gather <axis = -1> (scale, block)
  real = Mul (code, spread)
  square = Mul (real, real)
  no_number = IsNaN (square)
  nothing = Constant <value = float {0.0}> ()
  infinity = Reciprocal (nothing)
  mean = Where (no_number, infinity, square)
  squared_i = Constant <value_int: int = @squared> ()
  squared = Cast <to: int = 9> (squared_i)
  x = Where (squared, mean, real)
})";

// own_scale: the scale of each block of `real`. quotient: `real` divided by the
// scale of its block. is_lost: elements that are not finite.
constexpr char kScaleText[] = R"(
  difference = Sub (real, real)
  is_lost = IsNaN (difference)
  zero_f = Constant <value = float {0.0}> ()
  size_of = Abs (real)
  counted = Where (is_lost, zero_f, size_of)
  almost = Constant <value_int: int = 127> ()
  rounded_up = Add (columns_list, almost)
  blocks = Div (rounded_up, length)
  length_list = Constant <value_ints: ints = [128]> ()
  full = Mul (blocks, length_list)
  missing = Sub (full, columns_list)
  before = Constant <value_ints: ints = [0]> ()
  pads = Concat <axis = 0> (before, missing)
  last_axis = Constant <value_ints: ints = [-1]> ()
  padded = Pad (counted, pads, zero_f, last_axis)
  lead = Shape <start = 0, end = -1> (real)
  cut_shape = Concat <axis = 0> (lead, blocks, length_list)
  cut = Reshape <allowzero = 1> (padded, cut_shape)
  amax = ReduceMax <keepdims = 0> (cut, last_axis)
  top = Constant <value = float {448.0}> ()
  least_scale = Constant <value = float {1.1754943508222875e-38}> ()
  ratio = Div (amax, top)
  own_scale = Max (ratio, least_scale)
  spread = Gather <axis = -1> (own_scale, block)
  quotient = Div (real, spread)
)";

// The results, from the numbers `rounded` that codes have exactly.
constexpr char kKeepText[] = R"(
  old = Cast <to: int = 1> (codes)
  kept_number = Where (ok, rounded, old)
  new_codes = Cast <to: int = 17, saturate = 1> (kept_number)
  new_scale = Where (ok, own_scale, scale)
})";

// A Cast rounds the quotient. Engines give NaN either sign, so NaN loses its
// sign first.
constexpr char kNearestText[] = R"(
  is_nan = IsNaN (quotient)
  positive = Abs (quotient)
  sure = Where (is_nan, positive, quotient)
  nearest = Cast <to: int = 17, saturate = 1> (sure)
  rounded = Cast <to: int = 1> (nearest)
)";

// A unit is 2^-3 of the power of two in the quotient, at least 2^-9. All is
// exact in double.
constexpr char kRootText[] = R"(
  quotient_d = Cast <to: int = 11> (quotient)
  least_root = Constant <value = double {0.001953125}> ()
  magnitude = Max (quotient_d, least_root)
)";
constexpr char kStochasticText[] = R"(
  eighth = Constant <value = double {0.125}> ()
  unit = Mul (power, eighth)
  units = Div (magnitude, unit)
  x_shape = Shape (x)
  shares = Reshape <allowzero = 1> (share, x_shape)
  moved = Add (units, shares)
  whole = Floor (moved)
  product = Mul (whole, unit)
  largest = Constant <value = double {448.0}> ()
  within = Min (product, largest)
  number = Cast <to: int = 1> (within)
  is_positive = Greater (real, zero_f)
  or_zero = Where (is_positive, number, zero_f)
  lost_number = Abs (difference)
  rounded = Where (is_lost, lost_number, or_zero)
)";

const std::string& DecodeBody() {
  static const std::string body =
      Concat("(codes, scale) => (x) {\n  code = Cast <to: int = 1> (codes)",
             BlockText("code"), kDecodeEnd);
  return body;
}

const std::string& EncodeBody() {
  static const std::string body =
      Concat("(x, codes, scale, ok) => (new_codes, new_scale) {\n",
             "  real = Identity (x)", BlockText("x"), kScaleText, kNearestText,
             kKeepText);
  return body;
}

const std::string& EncodeSecondBody() {
  static const std::string body = Concat(
      "(x, codes, scale, ok, seed, update) => (new_codes, new_scale) {\n",
      "  real = Sqrt (x)", BlockText("x"), kScaleText, DrawText(), kRootText,
      PowerOfTwoText(-6, 4), kStochasticText, kKeepText);
  return body;
}

// Errors: operand i + 1 has no scale for each block of operand i.
void CheckCodes(const Node& node, size_t i) {
  const Value &codes = *node.in(i), &scale = *node.in(i + 1);
  Check(codes.dtype == DType::kE4M3 && (!codes.shape || codes.rank() >= 2), "[",
        node.Where(), "] expected float8e4m3fn of rank 2 or more, got ",
        Name(codes.dtype), " in ", codes.name);
  Check(scale.dtype == DType::kFloat &&
            (!codes.concrete() || !scale.concrete() ||
             *scale.shape == MomentScaleShape(*codes.shape)),
        "[", node.Where(), "] expected a float for each block of ", codes.name,
        ", got ", scale.name);
}

void InferDecode(Node& node) {
  CheckArity(node, 2, 1);
  CheckCodes(node, 0);
  SameAs(node.in(0), node.out(0));
  node.out(0)->dtype = DType::kFloat;
}

// Inputs: x, codes, scale, ok.
void InferEncode(Node& node) {
  CheckCodes(node, 1);
  const Value &x = *node.in(0), &codes = *node.in(1), &ok = *node.in(3);
  Check(x.dtype == DType::kFloat &&
            (!x.concrete() || !codes.concrete() || *x.shape == *codes.shape),
        "[", node.Where(), "] expected floats of the shape of ", codes.name,
        ", got ", x.name);
  Check(ok.dtype == DType::kBool && (!ok.shape || ok.shape->empty()), "[",
        node.Where(), "] expected a bool of rank 0, got ", ok.name);
  SameAs(node.in(1), node.out(0));
  SameAs(node.in(2), node.out(1));
}

void InferEncodeFirst(Node& node) {
  CheckArity(node, 4, 2);
  InferEncode(node);
}

void InferEncodeSecond(Node& node) {
  CheckArity(node, 6, 2);
  InferEncode(node);
  CheckDraws(node, 4);
}

}  // namespace

std::vector<OpDefinition> MomentOps() {
  constexpr OpFacts facts = LateOp(OpKind::kOther);
  return {{"DecodeMoment",
           {{"squared", AttributeKind::kInt}},
           DecodeBody().c_str(),
           InferDecode,
           facts},
          {"EncodeMoment", {}, EncodeBody().c_str(), InferEncodeFirst, facts},
          // `seed` and `update` are RoundStochastic's.
          {"EncodeSecondMoment", DrawAttributes(), EncodeSecondBody().c_str(),
           InferEncodeSecond, facts}};
}

}  // namespace onnx_fp8
