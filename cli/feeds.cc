// SPDX-License-Identifier: Apache-2.0
#include "cli/feeds.h"

#include "base/check.h"

namespace onnx_fp8 {

Tensor FeedAs(const Tensor& array, DType dtype, const std::string& where) {
  if (array.dtype() == dtype) return array;
  auto exact = [](DType t) { return IsInteger(t) || t == DType::kBool; };
  bool fits = (IsFloat(array.dtype()) && IsFloat(dtype)) ||
              (exact(array.dtype()) && exact(dtype)) ||
              (IsInteger(array.dtype()) && IsFloat(dtype));
  Check(fits, "[", where, "] expected ", Name(dtype), ", got ",
        Name(array.dtype()));
  Tensor result = ConvertTo(array, dtype);
  Check(!exact(dtype) || Identical(ConvertTo(result, array.dtype()), array),
        "[", where, "] expected numbers that fit ", Name(dtype), ", got ",
        Name(array.dtype()), " beyond it");
  return result;
}

}  // namespace onnx_fp8
