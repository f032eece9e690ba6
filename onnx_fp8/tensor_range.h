// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The range of the numbers in a tensor of floats.
struct TensorRange {
  // The range of the finite elements; 0 if there is none.
  double min = 0, max = 0, amax = 0;
  int64_t nans = 0;
  int64_t infinite = 0;
  int64_t first = -1;  // the place of the first element that is not finite

  bool finite() const { return nans + infinite == 0; }
};

// Whether elements of this type may be NaN or infinite: floats of 8 to 64 bits.
bool MayBeNotFinite(DType dtype);

// REQUIRES: MayBeNotFinite(x.dtype()), host memory.
TensorRange RangeOf(const Tensor& x);

// RangeOf(x).first, but faster.
int64_t FirstNotFinite(const Tensor& x);

}  // namespace onnx_fp8
