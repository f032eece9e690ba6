// SPDX-License-Identifier: Apache-2.0
#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> MomentsOfSgd(const OptimizerSpec& spec) {
  if (spec.momentum == 0) return {};
  return {kMomentumBuffer};
}

Value* AppendSgd(Builder& b, const Update& update, const OptimizerSpec& spec) {
  std::vector<Value*> scalars = {update.lr, update.grad_scale, update.ok};
  const std::vector<std::string> moments = MomentsOfSgd(spec);
  if (moments.empty()) {
    AppendUpdate(b, "SGD", update, {}, scalars, {});
    return nullptr;
  }
  AppendUpdate(b, "SGDMomentum", update, moments, scalars,
               {{"momentum", static_cast<float>(spec.momentum)},
                {"nesterov", static_cast<int64_t>(spec.nesterov)}});
  return nullptr;
}

}  // namespace

void RegisterSgd(OptimizerRegistry& r) {
  r.Add({"sgd", 0, MomentsOfSgd, AppendSgd});
}

}  // namespace onnx_fp8
