// SPDX-License-Identifier: Apache-2.0
//
// Quantizers that add zeros, and products that read their codes. GPUs multiply
// FP8 matrices whose sizes are multiples of 16. A provider's pass makes these
// ops (providers/passes/pad_operands.h). The bodies call the plain forms.
#include "graph/schemas/quantize_padded.h"

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/quantize.h"

namespace onnx_fp8 {
namespace {

// The codes as a matrix, all axes but the last joined, with zeros up to
// multiples of 16 rows and columns, and its transpose. FP8 is padded as float,
// because ONNX's Pad of kBodyOpset takes no 8-bit floats.
constexpr char kPaddedCodes[] = R"(
  floats = Cast <to = 1> (codes)
  matrix = Flatten <axis = -1> (floats)
  sizes = Shape (matrix)
  unit = Constant <value_int = 16> ()
  most = Constant <value_int = 15> ()
  up = Add (sizes, most)
  units = Div (up, unit)
  padded_sizes = Mul (units, unit)
  ends = Sub (padded_sizes, sizes)
  begins = Sub (sizes, sizes)
  pads = Concat <axis = 0> (begins, ends)
  padded = Pad (matrix, pads)
  q = Cast <to: int = @to> (padded)
  q_transposed = Transpose <perm = [1, 0]> (q)
)";

std::string QuantizerText(const char* op, const char* operands) {
  return Concat("(", operands, ") => (q, scale, amax, q_transposed) {\n",
                "  codes, scale, amax = ", kDomain, ".", op,
                " <to: int = @to, q_max: float = @q_max> (", operands, ")",
                kPaddedCodes, "}");
}

// A product without the rows and columns that padding has added. `shape` is the
// result's.
std::string ProductText(const char* operands, const char* bias) {
  return Concat("(", operands, ") => (y) {\n  whole = ", kDomain,
                ".ScaledMatMul <transA = 0, transB = 1> "
                "(a_q, a_scale, b_q, b_scale)",
                R"(
  matrix = Flatten <axis = -1> (whole)
  shape = Constant <value_ints: ints = @shape> ()
  zero = Constant <value = int64[1] {0}> ()
  last = Constant <value = int64[1] {-1}> ()
  end = Constant <value = int64[1] {9223372036854775807}> ()
  leading = Slice (shape, zero, last)
  rows = ReduceProd <keepdims = 1> (leading)
  columns = Slice (shape, last, end)
  from = Constant <value = int64[2] {0, 0}> ()
  to = Concat <axis = 0> (rows, columns)
  product = Slice (matrix, from, to)
)",
                bias, "  y = Reshape <allowzero = 1> (result, shape)\n}");
}

const std::string& QuantizeTensorPaddedBody() {
  static const std::string body = QuantizerText("QuantizeTensor", "x");
  return body;
}
const std::string& QuantizeWithPaddedBody() {
  static const std::string body = QuantizerText("QuantizeWith", "x, scale_in");
  return body;
}
const std::string& ScaledMatMulPaddedBody() {
  static const std::string body = ProductText(
      "a_q, a_scale, b_q, b_scale", "  result = Identity (product)\n");
  return body;
}
const std::string& ScaledMatMulPaddedBiasBody() {
  static const std::string body = ProductText(
      "a_q, a_scale, b_q, b_scale, bias", "  result = Add (product, bias)\n");
  return body;
}

void InferQuantizePadded(Node& node) {
  const Value& x = Operand(node, 0, DType::kFloat);
  Check(!x.shape || x.rank() >= 1, "[", node.Where(),
        "] expected input 0 of rank 1 or more, got a scalar");
  DType to = Float8Target(node);
  std::optional<Shape> q, transposed;
  if (x.concrete()) {
    q = Shape{PaddedSize(Rows(*x.shape)), PaddedSize(x.shape->back())};
    transposed = Shape{(*q)[1], (*q)[0]};
  }
  SetOutput(node, 0, to, q);
  SetOutput(node, 1, DType::kFloat, Shape{});
  SetOutput(node, 2, DType::kFloat, Shape{});
  SetOutput(node, 3, to, transposed);
}

void InferQuantizeWithPadded(Node& node) {
  CheckScalar(node, 1, DType::kFloat);
  InferQuantizePadded(node);
}

void InferScaledMatMulPadded(Node& node) {
  CheckFloat8(node, 0);
  CheckScalar(node, 1, DType::kFloat);
  CheckFloat8(node, 2);
  CheckScalar(node, 3, DType::kFloat);
  Shape y = node.Ints("shape", {});
  Check(y.size() >= 2 && IsConcrete(y), "[", node.Where(),
        "] expected the attribute shape to be that of a product, got ",
        ToString(y));
  SetOutput(node, 0, DType::kFloat, y);
  const Value &a = *node.in(0), &b = *node.in(2);
  if (!a.concrete() || !b.concrete()) return;
  Check(a.shape->back() == b.shape->back() && Rows(*a.shape) >= Rows(y) &&
            Rows(*b.shape) >= y.back(),
        "[", node.Where(), "] expected operands that make a product of shape ",
        ToString(y), ", got ", ToString(*a.shape), " and ", ToString(*b.shape),
        " transposed");
}

void InferScaledMatMulPaddedBias(Node& node) {
  InferScaledMatMulPadded(node);
  CheckBias(node);
}

}  // namespace

std::vector<OpDefinition> QuantizePaddedOps() {
  std::vector<AttributeDefinition> quantize = {
      {"to", AttributeKind::kInt}, {"q_max", AttributeKind::kFloat}};
  std::vector<AttributeDefinition> product = {{"shape", AttributeKind::kInts}};
  return {
      {"QuantizeTensorPadded", quantize, QuantizeTensorPaddedBody().c_str(),
       InferQuantizePadded,
       LateOp(OpKind::kQuantize, {.scale = CodeScale::kMeasured})},
      {"QuantizeWithPadded", quantize, QuantizeWithPaddedBody().c_str(),
       InferQuantizeWithPadded,
       LateOp(OpKind::kQuantize, {.scale = CodeScale::kGiven})},
      {"ScaledMatMulPadded", product, ScaledMatMulPaddedBody().c_str(),
       InferScaledMatMulPadded,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
      {"ScaledMatMulPaddedBias", product, ScaledMatMulPaddedBiasBody().c_str(),
       InferScaledMatMulPaddedBias,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
  };
}

}  // namespace onnx_fp8
