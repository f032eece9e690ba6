// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Uniform numbers from [-scale, scale). The same seed gives the same numbers.
// All numbers are finite and zero or normal, because a product of infinities,
// NaN or subnormal numbers may take longer.
Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed,
                    float scale = 1);

}  // namespace onnx_fp8
