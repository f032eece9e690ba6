// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// How the loss is scaled in float16. Many gradients are smaller than the
// smallest float16. So the backward multiplies all gradients by a scale, and
// the update divides them by it. The scale changes as in torch.amp.GradScaler;
// the defaults are GradScaler's too.
struct LossScaling {
  double init = 65536;   // the scale of the first step
  double growth = 2;     // factor of the scale after `interval` good steps
  double backoff = 0.5;  // factor after a step with infinite or NaN gradients
  int64_t interval = 2000;
};

}  // namespace onnx_fp8
