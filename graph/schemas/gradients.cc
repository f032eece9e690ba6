// SPDX-License-Identifier: Apache-2.0
//
// Gradients of ops that are worth a single pass over memory.
#include <string>

#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

void CheckSameShape(const Node& node, size_t i, size_t j) {
  const Value *u = node.in(i), *v = node.in(j);
  Check(!u->concrete() || !v->concrete() || *u->shape == *v->shape, "[",
        node.Where(), "] expected operands ", i, " and ", j,
        " of the same shape, got ", u->shape ? ToString(*u->shape) : "",
        " and ", v->shape ? ToString(*v->shape) : "");
}

// (dy, x or y) -> dx
void InferLikeOperand(Node& node) {
  CheckArity(node, 2, 1);
  CheckSameShape(node, 0, 1);
  if (node.Has("axis") && node.in(1)->shape) {
    NormalizeAxis(node.Int("axis", 0), node.in(1)->rank(), node.Where());
  }
  SameAs(node.in(1), node.out(0));
}

// (dy, x, gate) -> (dx, dgate)
void InferSwiGLUGrad(Node& node) {
  CheckArity(node, 3, 2);
  CheckSameShape(node, 0, 1);
  CheckSameShape(node, 0, 2);
  SameAs(node.in(1), node.out(0));
  SameAs(node.in(2), node.out(1));
}

// (dy, x, scale, …) from input `first` on -> (dx, dscale, …)
void InferNorm(Node& node, size_t first, size_t inputs, size_t outputs) {
  CheckArity(node, inputs, outputs);
  CheckSameShape(node, first, first + 1);
  const Value *x = node.in(first + 1), *scale = node.in(first + 2);
  if (x->concrete() && scale->concrete()) {
    int64_t axis = NormalizeAxis(node.Int("axis", 0), x->rank(), node.Where());
    Shape tail(x->shape->begin() + axis, x->shape->end());
    Check(*scale->shape == tail, "[", node.Where(),
          "] expected scale of shape ", ToString(tail), ", got ",
          ToString(*scale->shape));
  }
  SameAs(x, node.out(0));
  for (size_t i = 1; i < outputs; ++i) SameAs(scale, node.out(i));
}

void InferLayerNormGrad(Node& node) {
  InferNorm(node, 0, 5, 3);
  CheckSameShape(node, 3, 4);
}

void InferRMSNormGrad(Node& node) { InferNorm(node, 0, 3, 2); }

// (dsum, dy, x, scale, …) -> (dx, dscale, …)
void InferAddLayerNormGrad(Node& node) {
  InferNorm(node, 1, 6, 3);
  CheckSameShape(node, 0, 1);
  CheckSameShape(node, 4, 5);
}

void InferAddRMSNormGrad(Node& node) {
  InferNorm(node, 1, 4, 2);
  CheckSameShape(node, 0, 1);
}

// (dy, x) -> (dx, dbias)
void InferBiasGrad(Node& node) {
  CheckArity(node, 2, 2);
  CheckSameShape(node, 0, 1);
  const Value* x = node.in(1);
  SameAs(x, node.out(0));
  node.out(1)->dtype = x->dtype;
  if (!x->concrete()) return;
  Check(x->rank() > 0, "[", node.Where(), "] expected rows, got a scalar");
  node.out(1)->shape = Shape{x->dim(-1)};
}

void InferGatherGrad(Node& node) {
  CheckArity(node, 2, 1);
  Shape shape = node.Ints("shape");
  int64_t rank = static_cast<int64_t>(shape.size());
  int64_t axis = NormalizeAxis(node.Int("axis", 0), rank, node.Where());
  for (int64_t size : shape) {
    Check(size >= 0, "[", node.Where(), "] expected axis sizes >= 0, got ",
          size);
  }
  const Value *dy = node.in(0), *indices = node.in(1);
  if (dy->concrete() && indices->concrete()) {
    Shape expected(shape.begin(), shape.begin() + axis);
    expected.insert(expected.end(), indices->shape->begin(),
                    indices->shape->end());
    expected.insert(expected.end(), shape.begin() + axis + 1, shape.end());
    Check(*dy->shape == expected, "[", node.Where(), "] expected dy of shape ",
          ToString(expected), ", got ", ToString(*dy->shape));
  }
  node.out(0)->dtype = dy->dtype;
  node.out(0)->shape = std::move(shape);
}

constexpr char kSoftmaxGrad[] = R"((dy, y) => (dx) {
  axis = Constant <value_int: int = @axis> ()
  zero = Constant <value_ints = [0]> ()
  axes = Unsqueeze (axis, zero)
  dyy = Mul (dy, y)
  along = ReduceSum (dyy, axes)
  rest = Sub (dy, along)
  dx = Mul (y, rest)
})";

// Axes: axis … rank-1 are `axes`, 0 … axis-1 are `lead`.
constexpr char kLayerNormGrad[] = R"(
  axis = Constant <value_int: int = @axis> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  shape = Shape (x)
  rank = Size (shape)
  first = Mod (axis, rank)
  axes = Range (first, rank, one)
  lead = Range (zero, first, one)
  m = CastLike (mean, x)
  s = CastLike (inv_std, x)
  centered = Sub (x, m)
  h = Mul (centered, s)
  dh = Mul (dy, scale)
  dh_mean = ReduceMean (dh, axes)
  dhh = Mul (dh, h)
  dhh_mean = ReduceMean (dhh, axes)
  along = Mul (h, dhh_mean)
  less_mean = Sub (dh, dh_mean)
  rest = Sub (less_mean, along)
  dx = Mul (rest, s)
  dyh = Mul (dy, h)
  dscale = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (dyh, lead)
  dbias = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (dy, lead)
)";

constexpr char kRMSNormGrad[] = R"(
  axis = Constant <value_int: int = @axis> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  shape = Shape (x)
  rank = Size (shape)
  first = Mod (axis, rank)
  axes = Range (first, rank, one)
  lead = Range (zero, first, one)
  epsilon = Constant <value_float: float = @epsilon> ()
  e = CastLike (epsilon, x)
  xx = Mul (x, x)
  square = ReduceMean (xx, axes)
  shifted = Add (square, e)
  root = Sqrt (shifted)
  s = Reciprocal (root)
  h = Mul (x, s)
  dh = Mul (dy, scale)
  dhh = Mul (dh, h)
  dhh_mean = ReduceMean (dhh, axes)
  along = Mul (h, dhh_mean)
  rest = Sub (dh, along)
  dx = Mul (rest, s)
  dyh = Mul (dy, h)
  dscale = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (dyh, lead)
)";

// If other nodes read x too, their gradients are added.
constexpr char kPlusOthers[] = "  total = Add (dx, dsum)\n";

// The gradient of a vector that was added to x: dx summed over its rows.
constexpr char kSumOfRows[] = R"(
  dx_shape = Shape (dx)
  dx_rank = Size (dx_shape)
  axis_0 = Constant <value_int = 0> ()
  axis_1 = Constant <value_int = 1> ()
  last_axis = Sub (dx_rank, axis_1)
  rows = Range (axis_0, last_axis, axis_1)
  dbias = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (dx, rows)
)";

// y = x Φ(x): y' = Φ(x) + x φ(x)
constexpr char kGeluGrad[] = R"(
  half = Constant <value_float = 0.5> ()
  one = Constant <value_float = 1.0> ()
  root_half = Constant <value = double {0.7071067811865476}> ()
  density_at_0 = Constant <value = double {0.3989422804014327}> ()
  h = CastLike (half, x)
  i = CastLike (one, x)
  r = CastLike (root_half, x)
  d = CastLike (density_at_0, x)
  z = Mul (x, r)
  erf = Erf (z)
  erf_1 = Add (erf, i)
  cdf = Mul (erf_1, h)
  zz = Mul (z, z)
  minus_zz = Neg (zz)
  bell = Exp (minus_zz)
  density = Mul (bell, d)
  x_density = Mul (x, density)
  slope = Add (cdf, x_density)
  dx = Mul (dy, slope)
)";

// y = x (1 + t)/2, t = tanh(u), u = √(2/π) (x + 0.044715 x³)
constexpr char kGeluTanhGrad[] = R"(
  half = Constant <value_float = 0.5> ()
  one = Constant <value_float = 1.0> ()
  root = Constant <value = double {0.7978845608028654}> ()
  cubic = Constant <value = double {0.044715}> ()
  cubic_3 = Constant <value = double {0.134145}> ()
  h = CastLike (half, x)
  i = CastLike (one, x)
  r = CastLike (root, x)
  k = CastLike (cubic, x)
  k3 = CastLike (cubic_3, x)
  xx = Mul (x, x)
  kxx = Mul (xx, k)
  kxx_1 = Add (kxx, i)
  rx = Mul (x, r)
  u = Mul (rx, kxx_1)
  t = Tanh (u)
  t_1 = Add (t, i)
  left = Mul (t_1, h)
  tt = Mul (t, t)
  dt = Sub (i, tt)
  k3xx = Mul (xx, k3)
  k3xx_1 = Add (k3xx, i)
  du = Mul (rx, k3xx_1)
  dtdu = Mul (dt, du)
  right = Mul (dtdu, h)
  slope = Add (left, right)
  dx = Mul (dy, slope)
)";

// y = x s, s = sigmoid(x): y' = s (1 + x (1 - s))
constexpr char kSiluGrad[] = R"(
  one = Constant <value_float = 1.0> ()
  i = CastLike (one, x)
  s = Sigmoid (x)
  rest = Sub (i, s)
  x_rest = Mul (x, rest)
  x_rest_1 = Add (x_rest, i)
  slope = Mul (s, x_rest_1)
  dx = Mul (dy, slope)
)";

// y = x s · gate, s = sigmoid(x)
constexpr char kSwiGLUGrad[] = R"((dy, x, gate) => (dx, dgate) {
  one = Constant <value_float = 1.0> ()
  i = CastLike (one, x)
  s = Sigmoid (x)
  xs = Mul (x, s)
  dgate = Mul (dy, xs)
  rest = Sub (i, s)
  x_rest = Mul (x, rest)
  x_rest_1 = Add (x_rest, i)
  slope = Mul (s, x_rest_1)
  dy_gate = Mul (dy, gate)
  dx = Mul (dy_gate, slope)
})";

// ScatterElements, not ScatterND: stock ONNX Runtime races on the latter.
constexpr char kGatherGrad[] = R"((dy, indices) => (dx) {
  shape = Constant <value_ints: ints = @shape> ()
  axis = Constant <value_int: int = @axis> ()
  one = Constant <value_int = 1> ()
  zeros_1d = Constant <value_ints = [0]> ()
  ones_1d = Constant <value_ints = [1]> ()
  rank = Size (shape)
  first = Mod (axis, rank)
  next = Add (first, one)
  first_1d = Unsqueeze (first, zeros_1d)
  next_1d = Unsqueeze (next, zeros_1d)
  rank_1d = Unsqueeze (rank, zeros_1d)
  before = Slice (shape, zeros_1d, first_1d)
  after = Slice (shape, next_1d, rank_1d)
  count = Size (indices)
  count_1d = Unsqueeze (count, zeros_1d)
  rows_shape = Concat <axis = 0> (before, count_1d, after)
  rows = Reshape <allowzero = 1> (dy, rows_shape)
  ones_after = ConstantOfShape <value = int64[1] {1}> (rank_1d)
  column = Slice (ones_after, next_1d, rank_1d)
  column_shape = Concat <axis = 0> (count_1d, column)
  places = Reshape <allowzero = 1> (indices, column_shape)
  all_places = Expand (places, rows_shape)
  zero_f = ConstantOfShape (shape)
  zero = CastLike (zero_f, dy)
  dx = ScatterElements <axis: int = @axis, reduction = "add"> (zero, all_places, rows)
})";

}  // namespace

std::vector<OpDefinition> GradientOps() {
  const AttributeDefinition axis = {"axis", AttributeKind::kInt};
  auto with = [](const char* header, const char* text, const char* more = "") {
    return std::string(header) + " {" + text + more + "}";
  };
  const char *to_dx = "(dy, x) => (dx)", *to_bias = "(dy, x) => (dx, dbias)";
  static const std::string
      layer_norm = with("(dy, x, scale, mean, inv_std) => (dx, dscale, dbias)",
                        kLayerNormGrad),
      add_layer_norm =
          with("(dsum, dy, x, scale, mean, inv_std) => (total, dscale, dbias)",
               kLayerNormGrad, kPlusOthers),
      rms_norm = with("(dy, x, scale) => (dx, dscale)", kRMSNormGrad),
      add_rms_norm = with("(dsum, dy, x, scale) => (total, dscale)",
                          kRMSNormGrad, kPlusOthers),
      gelu = with(to_dx, kGeluGrad),
      gelu_bias = with(to_bias, kGeluGrad, kSumOfRows),
      gelu_tanh = with(to_dx, kGeluTanhGrad),
      gelu_tanh_bias = with(to_bias, kGeluTanhGrad, kSumOfRows),
      silu = with(to_dx, kSiluGrad),
      silu_bias = with(to_bias, kSiluGrad, kSumOfRows);
  const AttributeDefinition epsilon = {"epsilon", AttributeKind::kFloat};
  constexpr OpFacts norm = LateOp(OpKind::kNorm),
                    other = LateOp(OpKind::kOther);
  return {
      {"AddLayerNormGrad",
       {axis},
       add_layer_norm.c_str(),
       InferAddLayerNormGrad,
       norm},
      {"AddRMSNormGrad",
       {axis, epsilon},
       add_rms_norm.c_str(),
       InferAddRMSNormGrad,
       norm},
      {"GatherGrad",
       {axis, {"shape", AttributeKind::kInts}},
       kGatherGrad,
       InferGatherGrad,
       other},
      {"GeluBiasGrad", {}, gelu_bias.c_str(), InferBiasGrad, other},
      {"GeluGrad", {}, gelu.c_str(), InferLikeOperand, other},
      {"GeluTanhBiasGrad", {}, gelu_tanh_bias.c_str(), InferBiasGrad, other},
      {"GeluTanhGrad", {}, gelu_tanh.c_str(), InferLikeOperand, other},
      {"LayerNormGrad", {axis}, layer_norm.c_str(), InferLayerNormGrad, norm},
      {"RMSNormGrad",
       {axis, epsilon},
       rms_norm.c_str(),
       InferRMSNormGrad,
       norm},
      {"SiluBiasGrad", {}, silu_bias.c_str(), InferBiasGrad, other},
      {"SiluGrad", {}, silu.c_str(), InferLikeOperand, other},
      {"SoftmaxGrad", {axis}, kSoftmaxGrad, InferLikeOperand, other},
      {"SwiGLUGrad", {}, kSwiGLUGrad, InferSwiGLUGrad, other},
  };
}

}  // namespace onnx_fp8
