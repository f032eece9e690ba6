// SPDX-License-Identifier: Apache-2.0
#include "training/gradients/rule.h"

namespace onnx_fp8 {

void RegisterResizeGradients(GradientRegistry&) {}

}  // namespace onnx_fp8
