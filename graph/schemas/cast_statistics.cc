// SPDX-License-Identifier: Apache-2.0
//
// CastStatistics counts and measures the effect of a cast to FP8 on a tensor.
// The result has the order of onnx_fp8/cast_statistics.h. `limit` lies half a
// step beyond the largest code, q_max. Numbers beyond `limit` are saturated.
// Numbers between q_max and `limit` are rounded to q_max.
//
// ProductStatistics measures a product beside another computation of it, x.
// None of its numbers is saturated, and it has no scale.
#include "onnx_fp8/cast_statistics.h"

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/quantize.h"

namespace onnx_fp8 {
namespace {

constexpr char kDecodedCast[] = R"(
  real = onnx_fp8.DequantizeBlock<block_rows: int = @block_rows, block_columns: int = @block_columns>(q, scale)
  code = Cast<to = 1>(q)
  zero = Constant<value = float {0.0}>()
  inf = Reciprocal(zero)
  size = Abs(x)
  is_finite = Less(size, inf)
)";

constexpr char kOtherProduct[] = R"(
  real = Identity(y)
  code = Identity(y)
  scale = Constant<value = float {0.0}>()
  zero = Constant<value = float {0.0}>()
  inf = Reciprocal(zero)
  size = Abs(x)
  x_is_finite = Less(size, inf)
  y_size = Abs(y)
  y_is_finite = Less(y_size, inf)
  is_finite = And(x_is_finite, y_is_finite)
)";

constexpr char kMasks[] = R"(
  is_not_finite = Not(is_finite)
  is_zero = Equal(x, zero)
  is_other = Not(is_zero)
  is_some = And(is_other, is_finite)
  has_zero_code = Equal(code, zero)
  is_flushed = And(is_some, has_zero_code)
)";

constexpr char kSaturation[] = R"(
  code_size = Abs(code)
  q_max = Constant<value_float: float = @q_max>()
  has_largest_code = Equal(code_size, q_max)
  limit = Constant<value_float: float = @limit>()
  beyond = Div(limit, q_max)
  real_size = Abs(real)
  most = Mul(real_size, beyond)
  is_larger = Greater(size, most)
  is_clipped = And(has_largest_code, is_larger)
  is_saturated = And(is_clipped, is_finite)
)";

constexpr char kErrors[] = R"(
  kept = Where(is_finite, x, zero)
  kept_real = Where(is_finite, real, zero)
  x_double = Cast<to = 11>(kept)
  real_double = Cast<to = 11>(kept_real)
  error = Sub(x_double, real_double)
  x_square = Mul(x_double, x_double)
  error_square = Mul(error, error)
  kept_size = Abs(kept)
  some_size = Where(is_some, size, inf)
  across = Constant<value = int64[1] {1}>()
  zero_size = Constant<value = float[1] {0.0}>()
)";

constexpr char kRows[] = R"(
  no_double = Constant<value = double {0.0}>()
  one_double = Constant<value = double {1.0}>()
  squares_of_rows = Flatten<axis = -1>(x_square)
  errors_of_rows = Flatten<axis = -1>(error_square)
  signal_of_rows = ReduceSum<keepdims = 0>(squares_of_rows, across)
  noise_of_rows = ReduceSum<keepdims = 0>(errors_of_rows, across)
)";

constexpr char kRowsAlone[] = R"(
  signal_of_lines = Identity(signal_of_rows)
  noise_of_lines = Identity(noise_of_rows)
)";

constexpr char kRowsAndColumns[] = R"(
  signal_of_columns = ReduceSum<keepdims = 0>(squares_of_rows, of_rows)
  noise_of_columns = ReduceSum<keepdims = 0>(errors_of_rows, of_rows)
  signal_of_lines = Concat<axis = 0>(signal_of_rows, signal_of_columns)
  noise_of_lines = Concat<axis = 0>(noise_of_rows, noise_of_columns)
)";

// A line that is 0 has no ratio.
constexpr char kLines[] = R"(
  has_signal = Greater(signal_of_lines, no_double)
  divisor = Where(has_signal, signal_of_lines, one_double)
  ratio = Div(noise_of_lines, divisor)
  capped_ratio = Min(ratio, one_double)
  lost = Where(has_signal, capped_ratio, no_double)
)";

std::string SumText(const char* to, const char* of) {
  return Concat("  ", to, "_double = Cast<to = 11>(", of, ")\n  ", to,
                "_row = Flatten<axis = 0>(", to, "_double)\n  ", to,
                " = ReduceSum<keepdims = 0>(", to, "_row, across)\n");
}

// The extremes of no numbers are 0 and infinity.
constexpr char kExtremes[] = R"(
  size_row = Flatten<axis = 0>(kept_size)
  largest = ReduceMax<keepdims = 0>(size_row, across)
  largest_size = Max(largest, zero_size)
  amax = Cast<to = 11>(largest_size)
  some_row = Flatten<axis = 0>(some_size)
  smallest = ReduceMin<keepdims = 0>(some_row, across)
  least = Cast<to = 11>(smallest)
  all = Size(x)
  all_double = Cast<to = 11>(all)
  elements = Unsqueeze(all_double, of_rows)
  scale_float = Cast<to = 1>(scale)
  scale_max = ReduceMax<keepdims = 0>(scale_float)
  largest_scale = Max(scale_max, zero)
  scale_double = Cast<to = 11>(largest_scale)
  scales = Unsqueeze(scale_double, of_rows)
  statistics = Concat<axis = 0>(elements, zeros, flushed, saturated, not_finite, signal, noise, lines, line_noise, amax, least, scales)
)";

std::string NumbersText(const char* lines) {
  return Concat(
      kErrors, "  of_rows = Constant<value = int64[1] {0}>()\n", kRows, lines,
      kLines, SumText("zeros", "is_zero"), SumText("flushed", "is_flushed"),
      SumText("saturated", "is_saturated"),
      SumText("not_finite", "is_not_finite"), SumText("signal", "x_square"),
      SumText("noise", "error_square"), SumText("lines", "has_signal"),
      SumText("line_noise", "lost"), kExtremes);
}

const std::string& CastStatisticsBody() {
  static const std::string body =
      Concat("(x, q, scale) => (statistics) {", kDecodedCast, kMasks,
             kSaturation, NumbersText(kRowsAlone), "}");
  return body;
}

const std::string& ProductStatisticsBody() {
  static const std::string body =
      Concat("(x, y) => (statistics) {", kOtherProduct, kMasks,
             "  is_saturated = Xor(is_zero, is_zero)\n",
             NumbersText(kRowsAndColumns), "}");
  return body;
}

void InferNumbers(Node& node, const char* expected) {
  const Value &x = *node.in(0), &other = *node.in(1);
  Check(!x.shape || !x.shape->empty(), "[", node.Where(),
        "] expected rows, got a scalar");
  Check(!x.concrete() || !other.concrete() || *x.shape == *other.shape, "[",
        node.Where(), "] expected ", expected, ", ",
        x.shape ? ToString(*x.shape) : std::string(), ", got ",
        other.shape ? ToString(*other.shape) : std::string());
  SetOutput(node, 0, DType::kDouble, Shape{CastStatistics::kNumbers});
}

void InferCastStatistics(Node& node) {
  Operand(node, 0, DType::kFloat);
  CheckFloat8(node, 1);
  InferNumbers(node, "codes of x");
}

void InferProductStatistics(Node& node) {
  Operand(node, 0, DType::kFloat);
  Operand(node, 1, DType::kFloat);
  InferNumbers(node, "a product of x's shape");
}

}  // namespace

std::vector<OpDefinition> CastStatisticsOps() {
  return {{"CastStatistics",
           {{"q_max", AttributeKind::kFloat},
            {"limit", AttributeKind::kFloat},
            {"block_rows", AttributeKind::kInt},
            {"block_columns", AttributeKind::kInt}},
           CastStatisticsBody().c_str(),
           InferCastStatistics,
           LateOp(OpKind::kOther)},
          {"ProductStatistics",
           {},
           ProductStatisticsBody().c_str(),
           InferProductStatistics,
           LateOp(OpKind::kOther)}};
}

}  // namespace onnx_fp8
