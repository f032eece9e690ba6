// SPDX-License-Identifier: Apache-2.0
//
// Floats as a bfloat16 and a signed correction of 8 or 16 bits
// (base/master_codes.h). `correction`: the correction's dtype, int8 or int16.
//   EncodeMaster  half, correction of x: a NaN stays one, with the correction 0
//   DecodeMaster  x of half and correction
// The bodies compute with numbers: |x| is some units, and a unit is 2^-15 or
// 2^-23 of the power of two in |x|. All is exact in double.
#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/draws.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// size: of x_d; sign_f: 1 or -1. A zero has the sign of its reciprocal. No
// Where chooses signed numbers below: onnxruntime's takes -0 for 0.
constexpr char kMasterSign[] = R"(
  zero_d = Constant <value = double {0.0}> ()
  size = Abs (x_d)
  below = Less (x_d, zero_d)
  inverse = Reciprocal (x_d)
  inverse_below = Less (inverse, zero_d)
  is_negative = Or (below, inverse_below)
  minus_f = Constant <value = float {-1.0}> ()
  plus_f = Constant <value = float {1.0}> ()
  sign_f = Where (is_negative, minus_f, plus_f)
  zero_f = Constant <value = float {0.0}> ()
)";

// steps: of a correction in the unit of the bfloat16.
constexpr char kMasterUnits[] = R"(
  to_i = Constant <value_int: int = @correction> ()
  int16_i = Constant <value_int: int = 5> ()
  is_wide = Equal (to_i, int16_i)
  many = Constant <value = double {65536.0}> ()
  few = Constant <value = double {256.0}> ()
  steps = Where (is_wide, many, few)
  to_coarse = Constant <value = double {0.0078125}> ()
  coarse = Mul (power, to_coarse)
  unit = Div (coarse, steps)
)";

constexpr char kMasterToEncode[] = R"(
  x_d = Cast <to: int = 11> (x)
  nothing = Sub (x_d, x_d)
)";
constexpr char kFiniteSize[] = R"(
  is_finite = Equal (nothing, zero_d)
  magnitude = Where (is_finite, size, zero_d)
)";
constexpr char kMasterHalf[] = R"(
  counted = Div (magnitude, unit)
  whole = Round (counted)
  quotient = Div (whole, steps)
  middle = Constant <value = double {0.5}> ()
  moved = Add (quotient, middle)
  halves = Floor (moved)
  back = Mul (halves, steps)
  left = Sub (whole, back)
  narrow = Cast <to: int = @correction> (left)
  number = Mul (halves, coarse)
  largest = Constant <value = double {3.3895313892515355e+38}> ()
  is_over = Greater (number, largest)
  within = Min (number, largest)
  within_f = Cast <to: int = 1> (within)
  infinity = Reciprocal (zero_f)
  size_f = Where (is_over, infinity, within_f)
  signed_f = Mul (size_f, sign_f)
  opposite = Neg (x)
  lost = Where (is_finite, zero_f, opposite)
  chosen = Sub (signed_f, lost)
  half = Cast <to: int = 16> (chosen)
})";

// A correction below zero leads to the bfloat16 before, which may have the next
// smaller unit.
constexpr char kMasterToDecode[] = R"(
  half_f = Cast <to: int = 1> (half)
  x_d = Cast <to: int = 11> (half_f)
  count = Cast <to: int = 11> (narrow)
)";
constexpr char kMasterSize[] = R"(
  end = Constant <value = double {3.402823669209385e+38}> ()
  is_end = GreaterOrEqual (size, end)
  known = Where (is_end, end, size)
  almost = Constant <value = double {0.998046875}> ()
  shrunk = Mul (known, almost)
  is_less = Less (count, zero_d)
  magnitude = Where (is_less, shrunk, known)
)";
constexpr char kMasterOfUnits[] = R"(
  difference = Mul (count, unit)
  number = Add (known, difference)
  is_within = Less (number, end)
  stays = Not (is_within)
  safe = Where (is_within, number, zero_d)
  size_f = Cast <to: int = 1> (safe)
  signed_f = Mul (size_f, sign_f)
  opposite = Neg (half_f)
  lost = Where (stays, opposite, zero_f)
  x = Sub (signed_f, lost)
})";

const std::string& EncodeMasterBody() {
  static const std::string body =
      Concat("(x) => (half, narrow) {", kMasterToEncode, kMasterSign,
             kFiniteSize, PowerOfTwoText(-126, 8), kMasterUnits, kMasterHalf);
  return body;
}

const std::string& DecodeMasterBody() {
  static const std::string body = Concat(
      "(half, narrow) => (x) {", kMasterToDecode, kMasterSign, kMasterSize,
      PowerOfTwoText(-126, 8), kMasterUnits, kMasterOfUnits);
  return body;
}

DType CorrectionAttribute(const Node& node) {
  const auto dtype = static_cast<DType>(node.Int("correction", 0));
  Check(dtype == DType::kInt8 || dtype == DType::kInt16, "[", node.Where(),
        "] expected a correction of int8 or int16, got ", Name(dtype));
  return dtype;
}

// Whether the value has the dtype, as far as that is known.
bool MayHave(const Value& value, DType dtype) {
  return value.dtype == dtype || value.dtype == DType::kUndefined;
}

void InferEncodeMaster(Node& node) {
  CheckArity(node, 1, 2);
  Check(MayHave(*node.in(0), DType::kFloat), "[", node.Where(),
        "] expected float, got ", Name(node.in(0)->dtype));
  for (Value* out : node.outputs()) SameAs(node.in(0), out);
  node.out(0)->dtype = DType::kBFloat16;
  node.out(1)->dtype = CorrectionAttribute(node);
}

void InferDecodeMaster(Node& node) {
  CheckArity(node, 2, 1);
  const DType correction = CorrectionAttribute(node);
  const Value &half = *node.in(0), &narrow = *node.in(1);
  Check(MayHave(half, DType::kBFloat16), "[", node.Where(),
        "] expected bfloat16, got ", Name(half.dtype), " in ", half.name);
  Check(
      MayHave(narrow, correction) && (!half.concrete() || !narrow.concrete() ||
                                      *half.shape == *narrow.shape),
      "[", node.Where(), "] expected a correction of ", Name(correction),
      " for each element of ", half.name, ", got ", narrow.name);
  SameAs(&half, node.out(0));
  node.out(0)->dtype = DType::kFloat;
}

}  // namespace

std::vector<OpDefinition> MasterOps() {
  const std::vector<AttributeDefinition> attributes = {
      {"correction", AttributeKind::kInt}};
  constexpr OpFacts facts = LateOp(OpKind::kOther);
  return {{"DecodeMaster", attributes, DecodeMasterBody().c_str(),
           InferDecodeMaster, facts},
          {"EncodeMaster", attributes, EncodeMasterBody().c_str(),
           InferEncodeMaster, facts}};
}

}  // namespace onnx_fp8
