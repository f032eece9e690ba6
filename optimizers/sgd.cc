// SPDX-License-Identifier: Apache-2.0
#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

Value* AppendSgd(Builder& b, const Update& update, const OptimizerSpec& spec) {
  std::vector<Value*> scalars = {update.lr, update.grad_scale, update.ok};
  if (spec.momentum == 0) {
    AppendUpdate(b, "SGD", update, {}, scalars, {});
    return nullptr;
  }
  AppendUpdate(b, "SGDMomentum", update, {kMomentumBuffer}, scalars,
               {{"momentum", static_cast<float>(spec.momentum)},
                {"nesterov", static_cast<int64_t>(spec.nesterov)}});
  return nullptr;
}

}  // namespace

void RegisterSgd(OptimizerRegistry& r) { r.Add({"sgd", 0, AppendSgd}); }

}  // namespace onnx_fp8
