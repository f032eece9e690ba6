// SPDX-License-Identifier: Apache-2.0
#include "optimizers/update.h"

namespace onnx_fp8 {

void AppendSgd(Builder& b, const Update& update, const OptimizerSpec& spec) {
  if (spec.momentum == 0) return AppendUpdate(b, "SGD", update, {}, {});
  AppendUpdate(b, "SGDMomentum", update, {"momentum_buffer"},
               {{"momentum", static_cast<float>(spec.momentum)},
                {"dampening", static_cast<float>(spec.dampening)},
                {"nesterov", static_cast<int64_t>(spec.nesterov)}});
}

}  // namespace onnx_fp8
