// SPDX-License-Identifier: Apache-2.0
#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

void AppendAdamOp(Builder& b, const char* op, const Update& update,
                  const OptimizerSpec& spec) {
  AppendUpdate(b, op, update, {"exp_avg", "exp_avg_sq"},
               {update.step, update.lr, update.grad_scale, update.ok},
               {{"one_minus_beta1", static_cast<float>(1 - spec.beta1)},
                {"one_minus_beta2", static_cast<float>(1 - spec.beta2)},
                {"eps", static_cast<float>(spec.eps)}});
}

}  // namespace

void AppendAdam(Builder& b, const Update& update, const OptimizerSpec& spec) {
  AppendAdamOp(b, "Adam", update, spec);
}

void AppendAdamW(Builder& b, const Update& update, const OptimizerSpec& spec) {
  AppendAdamOp(b, "AdamW", update, spec);
}

}  // namespace onnx_fp8
