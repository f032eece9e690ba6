// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/stochastic_rounding.h"

namespace onnx_fp8 {

// y[i] = x[i] as bfloat16 for n elements of a part, of which x[0] is element
// `first`. `key`: DrawKey's.
void RoundStochastic(const float* x, uint16_t* y, int64_t first, int64_t n,
                     const ElementPlaces& places, uint32_t key);

}  // namespace onnx_fp8
