// SPDX-License-Identifier: Apache-2.0
//
// The FP8 ops of a per-tensor recipe. real = q · scale throughout.
#include "graph/schemas/quantize.h"

#include <cmath>

#include "base/check.h"
#include "graph/schemas.h"

namespace onnx_fp8 {

void SetOutput(Node& node, size_t i, DType dtype, std::optional<Shape> shape) {
  Value* out = node.out(i);
  if (out == nullptr) return;
  out->dtype = dtype;
  if (shape) out->shape = std::move(shape);
}

const Value& Operand(const Node& node, size_t i, DType dtype) {
  const Value* in = node.in(i);
  Check(in != nullptr, "[", node.Where(), "] expected ", i + 1,
        " inputs or more, got less");
  Check(in->dtype == dtype || in->dtype == DType::kUndefined, "[", node.Where(),
        "] expected input ", i, " of type ", Name(dtype), ", got ",
        Name(in->dtype));
  return *in;
}

void CheckScalar(const Node& node, size_t i, DType dtype) {
  const Value& in = Operand(node, i, dtype);
  Check(!in.shape || in.shape->empty(), "[", node.Where(), "] expected input ",
        i, " to be a scalar, got shape ",
        in.shape ? ToString(*in.shape) : std::string());
}

DType Float8Target(const Node& node) {
  auto to = static_cast<DType>(node.Int("to", 0));
  float q_max = node.Float("q_max", 0.0f);
  Check(IsFloat8(to) && q_max > 0, "[", node.Where(),
        "] expected to = 17 or 19 and q_max > 0, got ", node.Int("to", 0),
        " and ", q_max);
  return to;
}

int64_t Rows(const Shape& shape) {
  Shape lead(shape.begin(), shape.end() - 1);
  return IsConcrete(lead) ? NumElements(lead) : -1;
}

void CheckFloat8(const Node& node, size_t i) {
  const Value* in = node.in(i);
  Check(in != nullptr, "[", node.Where(), "] expected ", i + 1,
        " inputs or more, got less");
  Check(IsFloat8(in->dtype) || in->dtype == DType::kUndefined, "[",
        node.Where(), "] expected input ", i, " in an 8-bit float format, got ",
        Name(in->dtype));
  Check(!in->shape || in->rank() >= 2, "[", node.Where(), "] expected input ",
        i, " of rank 2 or more, got shape ",
        in->shape ? ToString(*in->shape) : std::string());
}

void InferProduct(Node& node) {
  for (const char* key : {"transA", "transB"}) {
    int64_t value = node.Int(key, 0);
    Check(value == 0 || value == 1, "[", node.Where(), "] expected ", key,
          " of 0 or 1, got ", value);
  }
  CheckFloat8(node, 0);
  CheckFloat8(node, 2);
  SetOutput(node, 0, DType::kFloat, std::nullopt);
  const Value &a = *node.in(0), &b = *node.in(2);
  if (!a.shape || !b.shape) return;
  bool ta = node.Int("transA", 0) != 0, tb = node.Int("transB", 0) != 0;
  int64_t a_k = ta ? Rows(*a.shape) : a.shape->back();
  int64_t b_k = tb ? b.shape->back() : Rows(*b.shape);
  Check(a_k == b_k || a_k < 0 || b_k < 0, "[", node.Where(),
        "] expected operands that share an axis, got ", ToString(*a.shape),
        ta ? " transposed" : "", " and ", ToString(*b.shape),
        tb ? " transposed" : "");
  Shape y = ta ? Shape{a.shape->back(), 0} : *a.shape;
  y.back() = tb ? Rows(*b.shape) : b.shape->back();
  SetOutput(node, 0, DType::kFloat, y);
}

void CheckBias(const Node& node) {
  const Value& bias = Operand(node, 4, DType::kFloat);
  const Value* y = node.out(0);
  bool known = bias.concrete() && y && y->shape && y->shape->back() >= 0;
  Check(!known || *bias.shape == Shape{y->shape->back()}, "[", node.Where(),
        "] expected bias of shape [", known ? y->shape->back() : 0, "], got ",
        known ? ToString(*bias.shape) : std::string());
}

namespace {

// a: the largest finite |x|, 0 if there is none.
constexpr char kLargest[] = R"(
  finite_max = ReduceMax<keepdims = 0>(finite)
  a = Max(finite_max, zero)
)";

// factor = float(q_max / max(a, 1e-12)), divided in double: torchao's formula.
constexpr char kFactor[] = R"(
  eps = Constant<value = float {1e-12}>()
  a_eps = Max(a, eps)
  a_double = Cast<to = 11>(a_eps)
  m = Constant<value_float: float = @q_max>()
  m_double = Cast<to = 11>(m)
  ratio = Div(m_double, a_double)
  own_factor = Cast<to = 1>(ratio)
  own_scale = Reciprocal(own_factor)
)";

// Floats are turned and then encoded: ONNX moves FP8 codes from opset 21 on.
constexpr char kTranspose[] = R"(
  scaled_matrix = Flatten<axis = -1>(scaled)
  turned = Transpose<perm = [1, 0]>(scaled_matrix)
  q_transposed = Cast<to: int = @to, saturate = 1>(turned)
  rows = Flatten<axis = -1>(x)
  of_rows = Constant<value = int64[1] {0}>()
  column_sums = ReduceSum<keepdims = 0>(rows, of_rows)
)";

std::string QuantizeTensorText(const char* results, const char* more) {
  return Concat("(x) => (", results, ") {", kAmaxText, kLargest, kFactor, R"(
  scale = Identity(own_scale)
  scaled = Mul(x, own_factor)
  q = Cast<to: int = @to, saturate = 1>(scaled))",
                more, "}");
}

// A scale_in of 0 means "not yet known": then the tensor's own scale counts.
constexpr char kByScaleIn[] = R"(
  unknown = Equal(scale_in, zero)
  scale = Where(unknown, own_scale, scale_in)
  given_factor = Reciprocal(scale_in)
  factor = Where(unknown, own_factor, given_factor)
  scaled = Mul(x, factor)
  q = Cast<to: int = @to, saturate = 1>(scaled))";

std::string QuantizeWithText(const char* results, const char* more) {
  return Concat("(x, scale_in) => (", results, ") {", kAmaxText, kLargest,
                kFactor, kByScaleIn, more, "}");
}

// QuantizeWith for a part x of a tensor. `amax` is the whole tensor's, so the
// parts get the bytes that QuantizeWith gives the whole.
const std::string& QuantizeAmaxBody() {
  static const std::string body =
      Concat("(x, amax, scale_in) => (q, scale) {", R"(
  zero = Constant<value = float {0.0}>()
  a = Identity(amax))",
             kFactor, kByScaleIn, "\n}");
  return body;
}

const std::string& AmaxBody() {
  static const std::string body = Concat("(x) => (amax) {", kAmaxText, "}");
  return body;
}

constexpr char kResults[] = "q, scale, amax";
constexpr char kBothResults[] = "q, scale, amax, q_transposed, column_sums";

const std::string& QuantizeTensorBody() {
  static const std::string body = QuantizeTensorText(kResults, "\n");
  return body;
}
const std::string& QuantizeTensorTransposeBody() {
  static const std::string body = QuantizeTensorText(kBothResults, kTranspose);
  return body;
}
const std::string& QuantizeWithBody() {
  static const std::string body = QuantizeWithText(kResults, "\n");
  return body;
}
const std::string& QuantizeWithTransposeBody() {
  static const std::string body = QuantizeWithText(kBothResults, kTranspose);
  return body;
}

// TransformerEngine's kernel_bulk (transformer_engine/common/recipe/
// delayed_scaling.cu) for all slots at once, with the reciprocal scale. The
// newest amax is row H-1. Row 0 is cleared, but counts in the maximum before
// that. A slot whose amax is 0 or not finite keeps its column and its scale.
// The new scale, float(1 / float(q_max / m)) · 2^margin and at least 2^-126,
// equals QuantizeTensor's for the same amax and margin 0.
constexpr char kUpdateScaleBody[] =
    R"((amax, history, scale, q_max, ok) => (new_history, new_scale) {
  zero = Constant<value = float {0.0}>()
  inf = Reciprocal(zero)
  positive = Greater(amax, zero)
  finite = Less(amax, inf)
  valid = And(positive, finite)
  roll = And(valid, ok)
  axis = Constant<value = int64[1] {0}>()
  one = Constant<value = int64[1] {1}>()
  end = Constant<value = int64[1] {9223372036854775807}>()
  row = Unsqueeze(amax, axis)
  older = Slice(history, one, end, axis)
  window = Concat<axis = 0>(older, row)
  row_shape = Shape(row)
  clear = ConstantOfShape(row_shape)
  kept = Slice(window, one, end, axis)
  rolled = Concat<axis = 0>(clear, kept)
  new_history = Where(roll, rolled, history)
  nan = IsNaN(window)
  seen = Where(nan, inf, window)
  peak = ReduceMax<keepdims = 0>(seen, axis)
  most_recent = Constant<value_int: int = @most_recent>()
  recent = Cast<to = 9>(most_recent)
  m = Where(recent, amax, peak)
  m_finite = Less(m, inf)
  known = And(roll, m_finite)
  m_double = Cast<to = 11>(m)
  q_max_double = Cast<to = 11>(q_max)
  ratio = Div(q_max_double, m_double)
  factor = Cast<to = 1>(ratio)
  exact = Reciprocal(factor)
  two = Constant<value = float {2.0}>()
  margin = Constant<value_float: float = @margin>()
  room = Pow(two, margin)
  wanted = Mul(exact, room)
  tiny = Constant<value = float {1.1754943508222875e-38}>()
  bounded = Max(wanted, tiny)
  new_scale = Where(known, bounded, scale)
})";

// The product of two FP8 tensors as matrices (all axes but the last are one).
constexpr char kProduct[] = R"(
  af = Cast<to = 1>(a_q)
  a2 = Flatten<axis = -1>(af)
  bf = Cast<to = 1>(b_q)
  b2 = Flatten<axis = -1>(bf)
  sum = Gemm<transA: int = @transA, transB: int = @transB>(a2, b2)
  scale = Mul(a_scale, b_scale)
  product = Mul(sum, scale)
)";

const std::string& ScaledMatMulBody() {
  static const std::string body = Concat(
      "(a_q, a_scale, b_q, b_scale) => (y) {", kProduct, kProductShapeText, R"(
  y = Reshape<allowzero = 1>(product, shape)
})");
  return body;
}

const std::string& ScaledMatMulBiasBody() {
  static const std::string body =
      Concat("(a_q, a_scale, b_q, b_scale, bias) => (y) {", kProduct,
             kProductShapeText, R"(
  biased = Add(product, bias)
  y = Reshape<allowzero = 1>(biased, shape)
})");
  return body;
}

void InferQuantize(Node& node) {
  const Value& x = Operand(node, 0, DType::kFloat);
  SetOutput(node, 0, Float8Target(node), x.shape);
  SetOutput(node, 1, DType::kFloat, Shape{});
  SetOutput(node, 2, DType::kFloat, Shape{});
}

void InferQuantizeWith(Node& node) {
  CheckScalar(node, 1, DType::kFloat);
  InferQuantize(node);
}

void InferQuantizeAmax(Node& node) {
  const Value& x = Operand(node, 0, DType::kFloat);
  CheckScalar(node, 1, DType::kFloat);
  CheckScalar(node, 2, DType::kFloat);
  SetOutput(node, 0, Float8Target(node), x.shape);
  SetOutput(node, 1, DType::kFloat, Shape{});
}

void InferAmax(Node& node) {
  Operand(node, 0, DType::kFloat);
  SetOutput(node, 0, DType::kFloat, Shape{});
}

// Sets the types of two more results. For both, x is a matrix: all axes but the
// last are joined. Result 3 is the transpose of the codes, for providers whose
// products want both orientations. Result 4 has the sums of x's columns. If x
// is the gradient of a layer's result, these sums are the bias gradient.
void InferTranspose(Node& node) {
  const Value& x = *node.in(0);
  Check(!x.shape || x.rank() >= 1, "[", node.Where(),
        "] expected input 0 of rank 1 or more, got a scalar");
  std::optional<Shape> shape;
  if (x.shape) shape = Shape{x.shape->back(), Rows(*x.shape)};
  SetOutput(node, 3, Float8Target(node), shape);
  std::optional<Shape> columns;
  if (x.shape) columns = Shape{x.shape->back()};
  SetOutput(node, 4, DType::kFloat, columns);
}

void InferQuantizeTranspose(Node& node) {
  InferQuantize(node);
  InferTranspose(node);
}

void InferQuantizeWithTranspose(Node& node) {
  InferQuantizeWith(node);
  InferTranspose(node);
}

void InferUpdateScale(Node& node) {
  for (size_t i : {0, 2, 3}) {
    const Value& in = Operand(node, i, DType::kFloat);
    Check(!in.shape || in.rank() == 1, "[", node.Where(), "] expected input ",
          i, " of rank 1, got shape ",
          in.shape ? ToString(*in.shape) : std::string());
  }
  const Value& history = Operand(node, 1, DType::kFloat);
  Check(!history.shape || history.rank() == 2, "[", node.Where(),
        "] expected history of rank 2, got shape ",
        history.shape ? ToString(*history.shape) : std::string());
  CheckScalar(node, 4, DType::kBool);
  float margin = node.Float("margin", 0.0f);
  Check(std::fabs(margin) <= 100 && margin == std::floor(margin), "[",
        node.Where(), "] expected a whole margin from -100 to 100, got ",
        margin);
  SetOutput(node, 0, DType::kFloat, history.shape);
  SetOutput(node, 1, DType::kFloat, node.in(2)->shape);
}

void InferScaledMatMul(Node& node) {
  CheckScalar(node, 1, DType::kFloat);
  CheckScalar(node, 3, DType::kFloat);
  InferProduct(node);
}

void InferScaledMatMulBias(Node& node) {
  InferScaledMatMul(node);
  CheckBias(node);
}

}  // namespace

std::vector<OpDefinition> QuantizeOps() {
  std::vector<AttributeDefinition> quantize = {
      {"to", AttributeKind::kInt}, {"q_max", AttributeKind::kFloat}};
  std::vector<AttributeDefinition> product = {{"transA", AttributeKind::kInt},
                                              {"transB", AttributeKind::kInt}};
  return {
      {"QuantizeTensor", quantize, QuantizeTensorBody().c_str(), InferQuantize,
       LateOp(OpKind::kQuantize, {.scale = CodeScale::kMeasured})},
      {"QuantizeWith", quantize, QuantizeWithBody().c_str(), InferQuantizeWith,
       LateOp(OpKind::kQuantize, {.scale = CodeScale::kGiven})},
      {"QuantizeTensorTranspose", quantize,
       QuantizeTensorTransposeBody().c_str(), InferQuantizeTranspose,
       LateOp(OpKind::kQuantize,
              {.scale = CodeScale::kMeasured, .column_sums = 4})},
      {"QuantizeWithTranspose", quantize, QuantizeWithTransposeBody().c_str(),
       InferQuantizeWithTranspose,
       LateOp(OpKind::kQuantize,
              {.scale = CodeScale::kGiven, .column_sums = 4})},
      {"QuantizeAmax", quantize, QuantizeAmaxBody().c_str(), InferQuantizeAmax,
       LateOp(OpKind::kQuantize)},
      {"Amax", {}, AmaxBody().c_str(), InferAmax, LateOp(OpKind::kOther)},
      {"UpdateScale",
       {{"most_recent", AttributeKind::kInt},
        {"margin", AttributeKind::kFloat}},
       kUpdateScaleBody,
       InferUpdateScale,
       LateOp(OpKind::kScaleUpdate)},
      {"ScaledMatMul", product, ScaledMatMulBody().c_str(), InferScaledMatMul,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
      {"ScaledMatMulBias", product, ScaledMatMulBiasBody().c_str(),
       InferScaledMatMulBias,
       LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})},
  };
}

}  // namespace onnx_fp8
