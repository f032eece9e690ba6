// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with so few results per input that a product of matrices would
// mostly copy: depthwise ones, and their gradients.
#pragma once

#include <cstdint>

#include "providers/ops/window.h"

namespace onnx_fp8 {

// Whether ConvolvePlanes pays: most of its sums are results, and a plane of x
// with its padding has about the size of x and y (a file may ask for more
// padding than memory has room for).
bool FitsPlanes(const Window& w);

// y (planes, out): plane p is the sum of the convolutions of `depth` planes of
// x, from plane (p / shared) · depth on, with the filters of weight (filters,
// depth, kernel) in row p % filters, plus bias[p % filters] (null: 0). Sums are
// made in the order of the taps, per plane of x. T: float or double. REQUIRES:
// FitsPlanes(w), whose pad_end is not read.
template <typename T>
void ConvolvePlanes(const Window& w, int64_t planes, int64_t shared,
                    int64_t depth, int64_t filters, const T* x, const T* weight,
                    const T* bias, T* y);

}  // namespace onnx_fp8
