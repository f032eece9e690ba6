// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> MomentsOfAdam(const OptimizerSpec&) {
  return {kExpAvg, kExpAvgSq};
}

Value* AppendAdamOp(Builder& b, const char* op, const Update& update,
                    const OptimizerSpec& spec) {
  const Attributes numbers = {
      {"one_minus_beta1", static_cast<float>(1 - spec.beta1)},
      {"one_minus_beta2", static_cast<float>(1 - spec.beta2)},
      {"eps", static_cast<float>(spec.eps)}};
  const std::vector<Value*> made = AppendUpdate(
      b, op, update, MomentsOfAdam(spec),
      {update.step, update.lr, update.grad_scale, update.ok}, numbers);
  if (!update.measured) return nullptr;
  return b.Ours("UpdateAmax", {made[1], made[2], update.step}, numbers);
}

// rate · sqrt(1 - beta2^t) / (1 - beta1^t), computed once in double. `name`: of
// the result. `rate`: null for 1.
Value* Corrected(Builder& b, const Update& update, const OptimizerSpec& spec,
                 const char* name, Value* rate) {
  if (Value* made = b.graph().Find(name)) return made;
  Value* t = b.Cast(update.step, DType::kDouble);
  Value* one = b.Scalar(1, t);
  auto correction = [&](double beta) {
    Value* power = b.Op("Pow", {b.Scalar(beta, t), t});
    return b.Sub(one, power);
  };
  Value* root = b.Op("Sqrt", {correction(spec.beta2)});
  if (rate) root = b.Mul(b.Cast(rate, DType::kDouble), root);
  Value* result = b.Cast(b.Div(root, correction(spec.beta1)), DType::kFloat);
  b.graph().Rename(result, name);
  return result;
}

// Elements that the update node has changed.
Value* Taken(Builder& b, const Update& update, const OptimizerSpec& spec) {
  if (!spec.release_gradients) return update.ok;
  Value* lost = b.Op("IsNaN", {b.Sub(update.grad, update.grad)});
  return b.Op("And", {update.ok, b.Op("Not", {lost})});
}

// next · (1 - lr · lr_scale · weight_decay) of elements that were updated.
void DecayAfter(Builder& b, const Update& update, const OptimizerSpec& spec) {
  if (update.weight_decay == 0) return;
  auto binding =
      std::ranges::find(b.graph().state, update.param, &StateBinding::state);
  Value* next = binding->next;
  Value* lr = b.Cast(update.lr, next->dtype);
  Value* pull =
      b.Mul(lr, b.Scalar(update.lr_scale * update.weight_decay, next));
  Value* decayed = b.Sub(next, b.Mul(next, pull));
  binding->next =
      b.Op("Where", {Taken(b, update, spec), decayed, update.param});
}

Value* AppendAdam(Builder& b, const Update& update, const OptimizerSpec& spec) {
  return AppendAdamOp(b, "Adam", update, spec);
}

Value* AppendAdamW(Builder& b, const Update& update,
                   const OptimizerSpec& spec) {
  return AppendAdamOp(b, "AdamW", update, spec);
}

// An AdamW at a step so late that nothing is left to correct.
Value* AppendAdamWHf(Builder& b, const Update& update,
                     const OptimizerSpec& spec) {
  Update late = update;
  late.lr = Corrected(b, update, spec, "optimizer.corrected_lr", update.lr);
  late.step = b.Int(int64_t{1} << 40);
  late.weight_decay = 0;
  Value* amax = AppendAdamOp(b, "AdamW", late, spec);
  DecayAfter(b, update, spec);
  if (!amax) return nullptr;
  return b.Mul(amax,
               Corrected(b, update, spec, "optimizer.correction", nullptr));
}

}  // namespace

void RegisterAdam(OptimizerRegistry& r) {
  r.Add({"adamw", 0.01, MomentsOfAdam, AppendAdamW});  // decoupled decay
  r.Add({"adam", 0, MomentsOfAdam, AppendAdam});
  // Hugging Face's: eps before the bias correction, decay after the update.
  r.Add({"adamw_hf", 0, MomentsOfAdam, AppendAdamWHf});
}

}  // namespace onnx_fp8
