// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/ort/custom_op.h"

namespace onnx_fp8 {

// MaxPoolGrad of onnxruntime-training, in ONNX's own domain: each element of dy
// is added to the element of x that the pool chose. It reads the indices that
// MaxPool returned; the model says the shape of the result, batch and channels
// aside. Float only.
struct MaxPoolGradOp : CustomOp {
  MaxPoolGradOp();
};

}  // namespace onnx_fp8
