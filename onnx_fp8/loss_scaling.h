// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// How the loss is scaled in float16, whose smallest numbers are too large for
// most gradients: the backward begins with `scale` in place of 1, and the
// update divides by it. The scale moves as in torch.amp.GradScaler, whose
// defaults these are.
struct LossScaling {
  double init = 65536;  // the first scale
  // Its factor after `interval` good steps, and after a step whose gradients
  // are not finite. Such a step is skipped.
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;
};

}  // namespace onnx_fp8
