// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Uniform numbers of [-scale, scale), the same for the same seed. Values do not
// change the time, but infinities, NaN and subnormal numbers might.
Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed,
                    float scale = 1);

}  // namespace onnx_fp8
