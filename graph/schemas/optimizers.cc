// SPDX-License-Identifier: Apache-2.0
//
// One parameter's update, as PyTorch 2's optimizers define it:
//   g = grad · grad_scale (clipping), rate = lr · lr_scale. With ok false every
//   output is its input, and so is an element whose grad is not finite.
//   SGD      g += weight_decay · p;  p -= rate · g
//   SGDMomentum  the same with p -= rate · (nesterov ? g + momentum · b : b),
//            where b = momentum · b + g
//   Adam     g += weight_decay · p;  m, v = moving averages of g, g²;
//            p -= rate / (1 - beta1^t) · m / (sqrt(v) / sqrt(1 - beta2^t) +
//            eps)
//   AdamW    the same without the first line, but p *= 1 - rate · weight_decay
//   UpdateAmax  of the moments that Adam has made: the largest
//            |m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps)|, a
//            float. NaN counts as infinite, and no element gives 0.
// param, grad and moments have one shape and one float type; step (int64, the
// number of this update, from 1), lr, grad_scale (float) and ok (bool) have
// rank 0. Values that are computed once per tensor are computed in double.
//
// Adam's betas are given as 1 - beta: 1 - 0.999f is off by 1.3e-5, 0.001f only
// by 5e-8, so float attributes keep PyTorch's numbers.
#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// The elements that are updated. x - x is NaN if x is infinite or NaN.
constexpr char kTaken[] = R"(
  nothing = Sub (grad, grad)
  lost = IsNaN (nothing)
  finite = Not (lost)
  taken = And (ok, finite)
)";

// SGDMomentum moves in another direction, and keeps a buffer.
std::string SgdBody(bool momentum) {
  auto only = [=](const char* text) { return momentum ? text : ""; };
  return Concat("(param, grad, ", only("buffer, "),
                "lr, grad_scale, ok) => (param_out", only(", buffer_out"),
                ") {",
                R"(
  decay_f = Constant <value_float: float = @weight_decay> ()
  lr_scale_f = Constant <value_float: float = @lr_scale> ()
)",
                only(R"(
  momentum_f = Constant <value_float: float = @momentum> ()
  nesterov_i = Constant <value_int: int = @nesterov> ()
  nesterov = Cast <to: int = 9> (nesterov_i)
  momentum = CastLike (momentum_f, param)
)"),
                R"(
  lr_d = Cast <to: int = 11> (lr)
  lr_scale_d = Cast <to: int = 11> (lr_scale_f)
  rate_d = Mul (lr_d, lr_scale_d)
  rate = CastLike (rate_d, param)
  decay = CastLike (decay_f, param)
  clip = CastLike (grad_scale, param)
  scaled = Mul (grad, clip)
  pull = Mul (decay, param)
  g = Add (scaled, pull)
)",
                only(R"(
  old = Mul (momentum, buffer)
  b = Add (old, g)
  ahead = Mul (momentum, b)
  look = Add (g, ahead)
  direction = Where (nesterov, look, b)
)"),
                "move = Mul (rate, ", momentum ? "direction" : "g", ")", R"(
  moved = Sub (param, move)
)",
                kTaken, "param_out = Where (taken, moved, param)\n",
                only("buffer_out = Where (taken, b, buffer)"), "}");
}

// Adam's numbers of a step, and the corrections of its moments.
constexpr char kAdamCorrections[] = R"(
  new1_f = Constant <value_float: float = @one_minus_beta1> ()
  new2_f = Constant <value_float: float = @one_minus_beta2> ()
  eps_f = Constant <value_float: float = @eps> ()
  one = Constant <value = double {1}> ()
  t = Cast <to: int = 11> (step)
  new1_d = Cast <to: int = 11> (new1_f)
  new2_d = Cast <to: int = 11> (new2_f)
  beta1_d = Sub (one, new1_d)
  beta2_d = Sub (one, new2_d)
  power1 = Pow (beta1_d, t)
  power2 = Pow (beta2_d, t)
  correction1 = Sub (one, power1)
  correction2 = Sub (one, power2)
  root_d = Sqrt (correction2)
)";

// Adam and AdamW differ in one line each for the gradient and the parameter.
constexpr char kAdamBegin[] = R"(
(param, grad, exp_avg, exp_avg_sq, step, lr, grad_scale, ok)
=> (param_out, exp_avg_out, exp_avg_sq_out) {
  decay_f = Constant <value_float: float = @weight_decay> ()
  lr_scale_f = Constant <value_float: float = @lr_scale> ()
)";

constexpr char kAdamNumbers[] = R"(
  lr_d = Cast <to: int = 11> (lr)
  lr_scale_d = Cast <to: int = 11> (lr_scale_f)
  rate = Mul (lr_d, lr_scale_d)
  size_d = Div (rate, correction1)
  size = CastLike (size_d, param)
  root = CastLike (root_d, param)
  new1 = CastLike (new1_f, param)
  new2 = CastLike (new2_f, param)
  beta2 = CastLike (beta2_d, param)
  eps = CastLike (eps_f, param)
  clip = CastLike (grad_scale, param)
  scaled = Mul (grad, clip)
)";

constexpr char kAdamDecay[] = R"(
  decay = CastLike (decay_f, param)
  pull = Mul (decay, param)
  g = Add (scaled, pull)
  start = Identity (param)
)";

constexpr char kAdamWDecay[] = R"(
  decay_d = Cast <to: int = 11> (decay_f)
  shrink = Mul (rate, decay_d)
  keep_d = Sub (one, shrink)
  keep = CastLike (keep_d, param)
  g = Identity (scaled)
  start = Mul (param, keep)
)";

constexpr char kAdamEnd[] = R"(
  away = Sub (g, exp_avg)
  step1 = Mul (new1, away)
  m = Add (exp_avg, step1)
  square = Mul (g, g)
  old2 = Mul (beta2, exp_avg_sq)
  part2 = Mul (new2, square)
  v = Add (old2, part2)
  deviation = Sqrt (v)
  corrected = Div (deviation, root)
  denominator = Add (corrected, eps)
  direction = Div (m, denominator)
  move = Mul (size, direction)
  moved = Sub (start, move)
)";

constexpr char kAdamResults[] = R"(
  param_out = Where (taken, moved, param)
  exp_avg_out = Where (taken, m, exp_avg)
  exp_avg_sq_out = Where (taken, v, exp_avg_sq)
})";

const std::string& AdamBody() {
  static const std::string body =
      Concat(kAdamBegin, kAdamCorrections, kAdamNumbers, kAdamDecay, kAdamEnd,
             kTaken, kAdamResults);
  return body;
}

const std::string& AdamWBody() {
  static const std::string body =
      Concat(kAdamBegin, kAdamCorrections, kAdamNumbers, kAdamWDecay, kAdamEnd,
             kTaken, kAdamResults);
  return body;
}

// The maximum of an empty tensor (-Inf) becomes 0.
constexpr char kUpdateAmax[] = R"(
  root = CastLike (root_d, exp_avg)
  eps = CastLike (eps_f, exp_avg)
  deviation = Sqrt (exp_avg_sq)
  corrected = Div (deviation, root)
  denominator = Add (corrected, eps)
  direction = Div (exp_avg, denominator)
  size = Abs (direction)
  no_number = IsNaN (size)
  nothing = Constant <value = float {0.0}> ()
  zero = CastLike (nothing, exp_avg)
  infinity = Reciprocal (zero)
  sure = Where (no_number, infinity, size)
  most = ReduceMax <keepdims = 0> (sure)
  largest = Max (most, zero)
  largest_d = Cast <to: int = 11> (largest)
  whole = Div (largest_d, correction1)
  amax = Cast <to: int = 1> (whole)
})";

const std::string& UpdateAmaxBody() {
  static const std::string body = Concat(
      "(exp_avg, exp_avg_sq, step) => (amax) {", kAdamCorrections, kUpdateAmax);
  return body;
}

// Inputs: param, grad, `moments` moments, then scalars of these types. Outputs:
// param and moments.
void Infer(Node& node, size_t moments, const std::vector<DType>& scalars) {
  size_t tensors = 2 + moments;
  Check(node.inputs().size() == tensors + scalars.size() &&
            node.outputs().size() == 1 + moments,
        "[", node.Where(), "] expected ", tensors + scalars.size(),
        " inputs and ", 1 + moments, " outputs, got ", node.inputs().size(),
        " and ", node.outputs().size());
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    Check(node.in(i) != nullptr, "[", node.Where(), "] lacks input ", i);
    const Value& x = *node.in(i);
    if (i >= tensors) {
      DType dtype = scalars[i - tensors];
      Check(x.dtype == dtype && (!x.shape || x.shape->empty()), "[",
            node.Where(), "] expected a ", Name(dtype), " of rank 0, got ",
            x.name);
      continue;
    }
    const Value& param = *node.in(0);
    Check(x.dtype == DType::kFloat || x.dtype == DType::kDouble, "[",
          node.Where(), "] expected float or double, got ", Name(x.dtype),
          " in ", x.name);
    Check(x.dtype == param.dtype &&
              (!x.concrete() || !param.concrete() || *x.shape == *param.shape),
          "[", node.Where(), "] expected ", x.name, " like ", param.name);
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (!node.out(i)) continue;
    SameAs(node.in(0), node.out(i));
  }
}

void InferUpdateAmax(Node& node) {
  Check(node.inputs().size() == 3 && node.outputs().size() == 1, "[",
        node.Where(), "] expected 3 inputs and a result");
  const Value &m = *node.in(0), &v = *node.in(1), &step = *node.in(2);
  // The result's type is known even if no operand's is.
  constexpr DType kUnknown = DType::kUndefined;
  Check((m.dtype == DType::kFloat || m.dtype == DType::kDouble ||
         m.dtype == kUnknown) &&
            v.dtype == m.dtype &&
            (!m.concrete() || !v.concrete() || *m.shape == *v.shape),
        "[", node.Where(), "] expected two moments of float or double, got ",
        m.name, " and ", v.name);
  Check((step.dtype == DType::kInt64 || step.dtype == kUnknown) &&
            (!step.shape || step.shape->empty()),
        "[", node.Where(), "] expected an int64 of rank 0, got ", step.name);
  node.out(0)->dtype = DType::kFloat;
  node.out(0)->shape = Shape{};
}

const std::vector<DType>& SgdScalars() {
  static const std::vector<DType> types = {DType::kFloat, DType::kFloat,
                                           DType::kBool};
  return types;
}

const std::vector<DType>& AdamScalars() {
  static const std::vector<DType> types = {DType::kInt64, DType::kFloat,
                                           DType::kFloat, DType::kBool};
  return types;
}

}  // namespace

std::vector<OpDefinition> OptimizerOps() {
  constexpr AttributeKind kInt = AttributeKind::kInt;
  constexpr AttributeKind kFloat = AttributeKind::kFloat;
  std::vector<AttributeDefinition> adam = {{"weight_decay", kFloat},
                                           {"lr_scale", kFloat},
                                           {"one_minus_beta1", kFloat},
                                           {"one_minus_beta2", kFloat},
                                           {"eps", kFloat}};
  std::vector<AttributeDefinition> sizes(adam.begin() + 2, adam.end());
  static const std::string plain = SgdBody(false),
                           with_momentum = SgdBody(true);
  constexpr OpFacts update = LateOp(OpKind::kParameterUpdate, {.gradient = 1});
  return {
      {"SGD",
       {{"weight_decay", kFloat}, {"lr_scale", kFloat}},
       plain.c_str(),
       [](Node& node) { Infer(node, 0, SgdScalars()); },
       update},
      {"SGDMomentum",
       {{"weight_decay", kFloat},
        {"lr_scale", kFloat},
        {"momentum", kFloat},
        {"nesterov", kInt}},
       with_momentum.c_str(),
       [](Node& node) { Infer(node, 1, SgdScalars()); },
       update},
      {"Adam", adam, AdamBody().c_str(),
       [](Node& node) { Infer(node, 2, AdamScalars()); }, update},
      {"AdamW", adam, AdamWBody().c_str(),
       [](Node& node) { Infer(node, 2, AdamScalars()); }, update},
      {"UpdateAmax", sizes, UpdateAmaxBody().c_str(), InferUpdateAmax,
       LateOp(OpKind::kOther)},
  };
}

}  // namespace onnx_fp8
