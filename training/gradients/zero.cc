// SPDX-License-Identifier: Apache-2.0
#include "training/step/gradient_registry.h"

namespace onnx_fp8 {

void RegisterZeroGradients(GradientRegistry& r) {
  // Piecewise constant, or random without regard to the input.
  for (const char* op : {"ArgMax",
                         "ArgMin",
                         "Bernoulli",
                         "BitCast",
                         "Ceil",
                         "ConstantOfShape",
                         "Equal",
                         "EyeLike",
                         "Floor",
                         "Greater",
                         "GreaterOrEqual",
                         "Hardmax",
                         "IsInf",
                         "IsNaN",
                         "Less",
                         "LessOrEqual",
                         "Multinomial",
                         "NonMaxSuppression",
                         "NonZero",
                         "RandomNormalLike",
                         "RandomUniformLike",
                         "Round",
                         "Shape",
                         "Sign",
                         "Size"}) {
    r.AddZero(op);
  }
  r.AddZero("Detach", kDomain);
}

}  // namespace onnx_fp8
