// SPDX-License-Identifier: Apache-2.0
//
// The FP8 ops whose scales belong to blocks of a matrix [R, C]; all axes but
// the last are joined into R. The matrix is cut into blocks of block_rows x
// block_columns, where 0 means the whole axis; the last block of a row or
// column of blocks is shorter if the matrix ends. scale is [ceil(R /
// block_rows), ceil(C / block_columns)], with 1 for a whole axis even if that
// axis is empty.
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/quantize.h"

namespace onnx_fp8 {
namespace {

constexpr char kIntegers[] = R"(
  i0 = Constant<value = int64 {0}>()
  i1 = Constant<value = int64 {1}>()
  i1_list = Constant<value = int64[1] {1}>()
  i0_pair = Constant<value = int64[2] {0, 0}>()
)";

// Replaces each name in `text` by the text beside it.
std::string Filled(
    std::string text,
    std::initializer_list<std::pair<std::string_view, std::string_view>>
        names) {
  for (auto [name, by] : names) {
    for (size_t at = text.find(name); at != std::string::npos;
         at = text.find(name, at + by.size())) {
      text.replace(at, name.size(), by);
    }
  }
  return text;
}

// $_matrix = [R, C] of $. Its axes `r` and `c` are cut: $_r_block rows (at most
// R, at least 1) make a block, there are $_r_blocks blocks, and $_r_full rows
// would fill them. ATTR is the beginning of the attributes' names. $_cut = the
// shape of the full blocks: blocks, rows, blocks, columns.
std::string CutMatrix(std::string_view name, std::string_view attributes) {
  constexpr char kAxis[] = R"(
  $_AXIS_given = Constant<value_int: int = @ATTRblock_SIZE>()
  $_AXIS_whole = Equal($_AXIS_given, i0)
  $_AXIS_any = Max($_SIZE, i1)
  $_AXIS_least = Min($_AXIS_given, $_AXIS_any)
  $_AXIS_block = Where($_AXIS_whole, $_AXIS_any, $_AXIS_least)
  $_AXIS_sum = Add($_SIZE, $_AXIS_block)
  $_AXIS_last = Sub($_AXIS_sum, i1)
  $_AXIS_needed = Div($_AXIS_last, $_AXIS_block)
  $_AXIS_once = Cast<to = 7>($_AXIS_whole)
  $_AXIS_blocks = Max($_AXIS_needed, $_AXIS_once)
  $_AXIS_full = Mul($_AXIS_blocks, $_AXIS_block))";
  std::string text =
      Concat(R"(
  $_shape = Shape($)
  $_lead = Shape<start = 0, end = -1>($)
  $_rows = ReduceProd($_lead)
  $_columns = Shape<start = -1>($)
  $_matrix = Concat<axis = 0>($_rows, $_columns))",
             Filled(kAxis, {{"AXIS", "r"}, {"SIZE", "rows"}}),
             Filled(kAxis, {{"AXIS", "c"}, {"SIZE", "columns"}}), R"(
  $_cut = Concat<axis = 0>($_r_blocks, $_r_block, $_c_blocks, $_c_block)
)");
  return Filled(text, {{"$", name}, {"ATTR", attributes}});
}

// $_spread = [R, C]: for each element the entry of its block in `blocks`.
std::string Spread(std::string_view name, std::string_view blocks) {
  return Filled(R"(
  $_one_each = Concat<axis = 0>($_r_blocks, i1_list, $_c_blocks, i1_list)
  $_each = Reshape<allowzero = 1>(BLOCKS, $_one_each)
  $_all = Expand($_each, $_cut)
  $_full = Concat<axis = 0>($_r_full, $_c_full)
  $_wide = Reshape<allowzero = 1>($_all, $_full)
  $_spread = Slice($_wide, i0_pair, $_matrix)
)",
                {{"$", name}, {"BLOCKS", blocks}});
}

// $f = float($_q), $f_real = [R, C], its values times the scales $_scale.
std::string Dequantized(std::string_view name, std::string_view attributes) {
  std::string f = Concat(name, "f");
  return Concat(Filled("  $f = Cast<to = 1>($_q)\n", {{"$", name}}),
                CutMatrix(f, attributes),
                Filled(R"(
  $_scale_float = Cast<to = 1>($_scale)
  $_codes = Reshape<allowzero = 1>($f, $f_matrix)
)",
                       {{"$", name}}),
                Spread(f, Concat(name, "_scale_float")),
                Filled("  $f_real = Mul($_codes, $f_spread)\n", {{"$", name}}));
}

// a: the largest finite |x| of each block. Zeros fill the last blocks.
constexpr char kBlockMaxima[] = R"(
  flat = Reshape<allowzero = 1>(finite, x_matrix)
  missing_rows = Sub(x_r_full, x_rows)
  missing_columns = Sub(x_c_full, x_columns)
  missing = Concat<axis = 0>(i0_pair, missing_rows, missing_columns)
  padded = Pad(flat, missing)
  cut = Reshape<allowzero = 1>(padded, x_cut)
  within = Constant<value = int64[2] {1, 3}>()
  a = ReduceMax<keepdims = 0>(cut, within)
)";

// exact: QuantizeTensor's factor, but within 2^-126 … 2^126 for any q_max, so
// that it and its reciprocal are normal floats.
constexpr char kExactFactor[] = R"(
  eps = Constant<value = float {1e-12}>()
  v = Max(a, eps)
  v_double = Cast<to = 11>(v)
  m = Constant<value_float: float = @q_max>()
  m_double = Cast<to = 11>(m)
  ratio = Div(m_double, v_double)
  most = Constant<value = double {8.507059173023462e37}>()
  least = Constant<value = double {1.1754943508222875e-38}>()
  not_more = Min(ratio, most)
  not_less = Max(not_more, least)
  exact = Cast<to = 1>(not_less)
  pow2 = Constant<value_int: int = @pow2>()
  i2 = Constant<value = int64 {2}>()
  is_floor = Equal(pow2, i2)
  wanted = Where(is_floor, v, exact)
)";

// p8: the largest power of two that is <= `wanted`, a normal float. It is found
// bit by bit of the exponent: logarithms are wrong just below a power of two. A
// step beyond the largest float is infinite and never taken.
std::string PowerOfTwoBelow() {
  std::string text =
      "  p0 = Constant<value = float {1.1754943508222875e-38}>()";
  int count = 0;
  for (const char* step :
       {"1.7014118346046923e38", "1.8446744073709552e19", "4294967296.0",
        "65536.0", "256.0", "16.0", "4.0", "2.0"}) {
    text += Filled(R"(
  $_by = Constant<value = float {STEP}>()
  $_up = Mul($, $_by)
  $_fits = GreaterOrEqual(wanted, $_up)
  NEXT = Where($_fits, $_up, $))",
                   {{"STEP", step},
                    {"NEXT", Concat("p", count + 1)},
                    {"$", Concat("p", count)}});
    ++count;
  }
  return text;
}

// pow2 = 1: the factor is rounded down, so the scale is rounded up. pow2 = 2,
// the FLOOR of the OCP's microscaling formats: scale = 2^(floor(log2 v) -
// emax), where 2^emax is the largest power of two of the format (2^8 of e4m3,
// 2^15 of e5m2). It lies in 2^-55 … 2^119, and values above q_max saturate.
constexpr char kRoundedFactor[] = R"(
  to = Constant<value_int: int = @to>()
  e5m2 = Constant<value = int64 {19}>()
  is_e5m2 = Equal(to, e5m2)
  e5m2_unit = Constant<value = float {3.0517578125e-5}>()
  e4m3_unit = Constant<value = float {0.00390625}>()
  unit = Where(is_e5m2, e5m2_unit, e4m3_unit)
  floor_scale = Mul(p8, unit)
  floor_factor = Reciprocal(floor_scale)
  is_rounded = Cast<to = 9>(pow2)
  down = Where(is_rounded, p8, exact)
  factor = Where(is_floor, floor_factor, down)
  own_scale = Reciprocal(factor)
)";

// q, scale and amax of x.
std::string Quantized() {
  return Concat(kAmaxText, kIntegers, CutMatrix("x", ""), kBlockMaxima,
                kExactFactor, PowerOfTwoBelow(), kRoundedFactor,
                Spread("x", "factor"),
                R"(
  x_flat = Reshape<allowzero = 1>(x, x_matrix)
  scaled_flat = Mul(x_flat, x_spread)
  scaled = Reshape<allowzero = 1>(scaled_flat, x_shape)
  q = Cast<to: int = @to, saturate = 1>(scaled)
  scale = Cast<to: int = @scale_to>(own_scale)
)");
}

const std::string& QuantizeBlockBody() {
  static const std::string body =
      Concat("(x) => (q, scale, amax) {", Quantized(), "}");
  return body;
}

const std::string& QuantizeColumnsBody() {
  static const std::string body =
      Concat("(given) => (q, scale, amax, column_sums) {", R"(
  given_lead = Shape<start = 0, end = -1>(given)
  given_rows = ReduceProd(given_lead)
  given_columns = Shape<start = -1>(given)
  given_matrix = Concat<axis = 0>(given_rows, given_columns)
  given_flat = Reshape<allowzero = 1>(given, given_matrix)
  x = Transpose<perm = [1, 0]>(given_flat)
  of_rows = Constant<value = int64[1] {0}>()
  column_sums = ReduceSum<keepdims = 0>(given_flat, of_rows)
)",
             Quantized(), "}");
  return body;
}

// The results have the bits of QuantizeBlock and QuantizeColumns.
constexpr char kQuantizeBlockTranspose[] = R"(
(x) => (q, scale, amax, q_transposed, scale_transposed, column_sums) {
  q, scale, amax = onnx_fp8.QuantizeBlock<to: int = @to, q_max: float = @q_max, block_rows: int = @block_rows, block_columns: int = @block_columns, pow2: int = @pow2, scale_to: int = @scale_to>(x)
  q_transposed, scale_transposed, amax_again, column_sums = onnx_fp8.QuantizeColumns<to: int = @to, q_max: float = @q_max, block_rows: int = @block_rows, block_columns: int = @block_columns, pow2: int = @pow2, scale_to: int = @scale_to>(x)
})";

const std::string& DequantizeBlockBody() {
  static const std::string body = Concat("(q, scale) => (x) {", kIntegers, R"(
  x_q = Identity(q)
  x_scale = Identity(scale)
)",
                                         Dequantized("x", ""), R"(
  x = Reshape<allowzero = 1>(xf_real, xf_shape)
})");
  return body;
}

// y = op(dequantized a) · op(dequantized b).
std::string Product() {
  return Concat(kIntegers, Dequantized("a", "a_"), Dequantized("b", "b_"), R"(
  sum = Gemm<transA: int = @transA, transB: int = @transB>(af_real, bf_real)
)",
                kProductShapeText);
}

const std::string& ScaledMatMulBlockBody() {
  static const std::string body =
      Concat("(a_q, a_scale, b_q, b_scale) => (y) {", Product(), R"(
  y = Reshape<allowzero = 1>(sum, shape)
})");
  return body;
}

const std::string& ScaledMatMulBlockBiasBody() {
  static const std::string body =
      Concat("(a_q, a_scale, b_q, b_scale, bias) => (y) {", Product(), R"(
  biased = Add(sum, bias)
  y = Reshape<allowzero = 1>(biased, shape)
})");
  return body;
}

// Number of blocks of an axis; -1 if not known.
int64_t BlocksOf(int64_t size, int64_t block) {
  if (block == 0) return 1;
  return size < 0 ? -1 : (size + block - 1) / block;
}

int64_t BlockAttribute(const Node& node, const char* key) {
  int64_t block = node.Int(key, -1);
  Check(block >= 0, "[", node.Where(), "] expected ", key,
        " of 0 (the whole axis) or more, got ", block);
  return block;
}

Shape GridOf(const Node& node, const Shape& shape, const char* block_rows,
             const char* block_columns) {
  return {BlocksOf(Rows(shape), BlockAttribute(node, block_rows)),
          BlocksOf(shape.back(), BlockAttribute(node, block_columns))};
}

bool MayBe(const Shape& known, const Shape& wanted) {
  if (known.size() != wanted.size()) return false;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] >= 0 && wanted[i] >= 0 && known[i] != wanted[i]) return false;
  }
  return true;
}

// Errors: `scale` does not hold one scale for each block of `q`, or a scalar if
// there is only one block.
void CheckScales(const Node& node, size_t q, size_t scale,
                 const char* block_rows, const char* block_columns) {
  CheckFloat8(node, q);
  const Value* in = node.in(scale);
  Check(in != nullptr, "[", node.Where(), "] expected ", scale + 1,
        " inputs or more, got less");
  Check(in->dtype == DType::kFloat || in->dtype == DType::kE8M0 ||
            in->dtype == DType::kUndefined,
        "[", node.Where(), "] expected input ", scale,
        " of type float or float8e8m0, got ", Name(in->dtype));
  // Also checks the attributes.
  Shape grid = GridOf(node, node.in(q)->shape.value_or(Shape{-1, -1}),
                      block_rows, block_columns);
  Check(!in->shape || MayBe(*in->shape, grid) ||
            (in->shape->empty() && MayBe(Shape{1, 1}, grid)),
        "[", node.Where(), "] expected scales of shape ", ToString(grid),
        " as input ", scale, ", got ",
        in->shape ? ToString(*in->shape) : std::string());
}

// The results for codes of that shape.
void SetQuantized(Node& node, const std::optional<Shape>& codes) {
  SetOutput(node, 0, Float8Target(node), codes);
  SetOutput(node, 1, static_cast<DType>(node.Int("scale_to", 0)),
            GridOf(node, codes.value_or(Shape{-1, -1}), "block_rows",
                   "block_columns"));
  SetOutput(node, 2, DType::kFloat, Shape{});
}

// Checks the attributes of a quantizer, and returns its operand.
const Value& CheckQuantized(Node& node) {
  const Value& x = Operand(node, 0, DType::kFloat);
  Check(!x.shape || x.rank() >= 2, "[", node.Where(),
        "] expected x of rank 2 or more, got shape ",
        x.shape ? ToString(*x.shape) : std::string());
  int64_t pow2 = node.Int("pow2", -1);
  auto scale_to = static_cast<DType>(node.Int("scale_to", 0));
  Check(pow2 >= 0 && pow2 <= 2, "[", node.Where(),
        "] expected pow2 of 0, 1 or 2, got ", pow2);
  Check(scale_to == DType::kFloat || (scale_to == DType::kE8M0 && pow2 != 0),
        "[", node.Where(),
        "] expected scale_to of 1, or of 24 with scales that are powers of "
        "two, got ",
        node.Int("scale_to", 0), " and pow2 = ", pow2);
  return x;
}

void InferQuantizeBlock(Node& node) {
  SetQuantized(node, CheckQuantized(node).shape);
}

// Checks the attributes of a quantizer whose blocks are parts of a row.
const Value& CheckRowQuantized(Node& node) {
  const Value& x = CheckQuantized(node);
  Check(node.Int("block_rows", -1) == 1, "[", node.Where(),
        "] expected block_rows of 1, got ", node.Int("block_rows", -1));
  return x;
}

void InferQuantizeColumns(Node& node) {
  const Value& x = CheckRowQuantized(node);
  Shape codes = {-1, -1};
  std::optional<Shape> columns;
  if (x.shape) {
    codes = {x.shape->back(), Rows(*x.shape)};
    columns = Shape{x.shape->back()};
  }
  SetQuantized(node, codes);
  SetOutput(node, 3, DType::kFloat, columns);
}

void InferQuantizeBlockTranspose(Node& node) {
  const Value& x = CheckRowQuantized(node);
  SetQuantized(node, x.shape);
  Shape matrix =
      x.shape ? Shape{Rows(*x.shape), x.shape->back()} : Shape{-1, -1};
  SetOutput(node, 3, Float8Target(node), Shape{matrix[1], matrix[0]});
  int64_t parts = BlocksOf(matrix[0], BlockAttribute(node, "block_columns"));
  SetOutput(node, 4, static_cast<DType>(node.Int("scale_to", 0)),
            Shape{matrix[1], parts});
  SetOutput(node, 5, DType::kFloat, Shape{matrix[1]});
}

void InferDequantizeBlock(Node& node) {
  CheckScales(node, 0, 1, "block_rows", "block_columns");
  SetOutput(node, 0, DType::kFloat, node.in(0)->shape);
}

void InferScaledMatMulBlock(Node& node) {
  CheckScales(node, 0, 1, "a_block_rows", "a_block_columns");
  CheckScales(node, 2, 3, "b_block_rows", "b_block_columns");
  InferProduct(node);
}

void InferScaledMatMulBlockBias(Node& node) {
  InferScaledMatMulBlock(node);
  CheckBias(node);
}

}  // namespace

std::vector<OpDefinition> QuantizeBlockOps() {
  constexpr auto kInt = AttributeKind::kInt;
  std::vector<AttributeDefinition> product = {
      {"transA", kInt},       {"transB", kInt},
      {"a_block_rows", kInt}, {"a_block_columns", kInt},
      {"b_block_rows", kInt}, {"b_block_columns", kInt}};
  const std::vector<AttributeDefinition> quantizer = {
      {"to", kInt},         {"q_max", AttributeKind::kFloat},
      {"block_rows", kInt}, {"block_columns", kInt},
      {"pow2", kInt},       {"scale_to", kInt}};
  return {
      {"QuantizeBlock", quantizer, QuantizeBlockBody().c_str(),
       InferQuantizeBlock,
       LateOp(OpKind::kQuantize, {.scale = CodeScale::kBlocks})},
      // QuantizeBlock of the transpose of the matrix x, with block_rows = 1:
      // columns of x, or parts of them, have a scale each.
      {"QuantizeColumns", quantizer, QuantizeColumnsBody().c_str(),
       InferQuantizeColumns,
       LateOp(OpKind::kQuantize,
              {.scale = CodeScale::kBlocks, .column_sums = 3})},
      // QuantizeBlock with block_rows = 1 and QuantizeColumns of the same x.
      {"QuantizeBlockTranspose", quantizer, kQuantizeBlockTranspose,
       InferQuantizeBlockTranspose,
       LateOp(OpKind::kQuantize,
              {.scale = CodeScale::kBlocks, .column_sums = 5})},
      {"DequantizeBlock",
       {{"block_rows", kInt}, {"block_columns", kInt}},
       DequantizeBlockBody().c_str(),
       InferDequantizeBlock,
       LateOp(OpKind::kDequantize)},
      {"ScaledMatMulBlock", product, ScaledMatMulBlockBody().c_str(),
       InferScaledMatMulBlock,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
      {"ScaledMatMulBlockBias", product, ScaledMatMulBlockBiasBody().c_str(),
       InferScaledMatMulBlockBias,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
  };
}

}  // namespace onnx_fp8
