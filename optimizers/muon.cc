// SPDX-License-Identifier: Apache-2.0
//
// Muon, as torch.optim.Muon defines it, with iterations in the parameter's
// dtype where PyTorch's are in bfloat16:
//   b = momentum · b + (1 - momentum) · g
//   x = nesterov ? momentum · b + (1 - momentum) · g : b;  x /= max(|x|, eps)
//   x = a · x + (b' · s + c' · s · s) · x with s = x · xᵀ, some times
//   p -= lr · (factor(shape) · x + weight_decay · p)
// The last line is the op SGD with x in the place of the gradient.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> MomentsOfMuon(const OptimizerSpec&) {
  return {kMomentumBuffer};
}

const Shape& WholeOf(const Update& update) {
  return update.of.whole.empty() ? *update.param->shape : update.of.whole;
}

// The factor of the learning rate, which depends on PyTorch's shape.
double RateFactor(const Update& update, const MuonSettings& muon) {
  auto a = static_cast<double>(WholeOf(update)[0]);
  auto b = static_cast<double>(WholeOf(update)[1]);
  if (update.of.transposed) std::swap(a, b);
  return muon.adjust_lr == "original" ? std::sqrt(std::max(1.0, a / b))
                                      : 0.2 * std::sqrt(std::max(a, b));
}

// x / max(norm, eps), with singular values of about 1. The square that the
// iteration makes of x is the smaller one, x · xᵀ or xᵀ · x.
Value* Orthogonal(Builder& b, Value* x, Value* norm, const MuonSettings& muon) {
  const bool tall = x->dim(0) > x->dim(1);
  const auto [keep, once, twice] = muon.coefficients;
  const Attributes square = {{tall ? "transA" : "transB", int64_t{1}}};
  const Attributes polynomial = {{"alpha", static_cast<float>(twice)},
                                 {"beta", static_cast<float>(once)}};
  const Attributes move = {{"beta", static_cast<float>(keep)}};
  x = b.Div(x, b.Op("Max", {norm, b.Scalar(muon.eps, norm)}));
  for (int64_t step = 0; step < muon.steps; ++step) {
    Value* s = b.Op("Gemm", {x, x}, square);
    s = b.Op("Gemm", {s, s, s}, polynomial);
    x = tall ? b.Op("Gemm", {x, s, x}, move) : b.Op("Gemm", {s, x, x}, move);
  }
  return x;
}

Value* AppendMuon(Builder& b, const Update& update, const OptimizerSpec& spec) {
  const MuonSettings& muon = spec.muon;
  const Moment buffer = AddMoment(b.graph(), update, kMomentumBuffer);
  Value* old = Decoded(b, update, buffer);
  Value* share =
      b.Mul(update.grad_scale, b.Scalar(1 - muon.momentum, update.grad_scale));
  Value* grad = b.Cast(update.grad, update.param->dtype);
  Value* part = b.Mul(grad, b.Cast(share, grad->dtype));
  part->producer->metadata[kGradientOf] = update.param->name;
  auto decayed = [&](Value* x) { return b.Mul(x, b.Scalar(muon.momentum, x)); };
  Value* next = b.Add(decayed(old), part);
  Value* x = muon.nesterov ? b.Add(decayed(next), part) : next;
  if (update.of.to_whole) x = update.of.to_whole(b, x);
  Value* norm =
      b.Op("Sqrt", {b.Op("ReduceSumSquare", {x}, {{"keepdims", int64_t{0}}})});
  // One element that is not finite would spoil the whole matrix.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Value* finite = b.Op("Less", {norm, b.Scalar(kInfinity, norm)});
  Value* taken = b.Op("And", {update.ok, finite});
  BindMoment(b, update, buffer, b.Op("Where", {taken, next, old}));
  x = Orthogonal(b, x, norm, muon);
  Update move = update;
  move.grad = update.of.to_part ? update.of.to_part(b, x) : x;
  const auto factor = static_cast<float>(RateFactor(update, muon));
  AppendUpdate(b, "SGD", move, {},
               {update.lr, b.Constant(Tensor::Scalar(factor)), taken}, {});
  return nullptr;
}

}  // namespace

void RegisterMuon(OptimizerRegistry& r) {
  r.Add({"muon", 0.1, MomentsOfMuon, AppendMuon, "adamw"});
}

}  // namespace onnx_fp8
