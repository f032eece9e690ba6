// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Uniform numbers of [-scale, scale), the same for the same seed. There are no
// infinities, NaN and subnormal numbers: a product with them may take longer.
Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed,
                    float scale = 1);

}  // namespace onnx_fp8
