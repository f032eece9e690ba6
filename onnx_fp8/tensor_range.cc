// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor_range.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

double NumberOf(float x) { return x; }
double NumberOf(double x) { return x; }
template <typename T>
double NumberOf(T x) {
  return Decode(x);
}

// Calls `visit` with the elements in their own type.
template <typename F>
auto VisitFloats(const Tensor& x, F visit) {
  x.RequireHost();
  switch (x.dtype()) {
    case DType::kFloat:
      return visit(x.values<float>());
    case DType::kDouble:
      return visit(x.values<double>());
    case DType::kFloat16:
      return visit(x.values<Float16>());
    case DType::kBFloat16:
      return visit(x.values<BFloat16>());
    case DType::kE4M3:
      return visit(x.values<E4M3>());
    case DType::kE5M2:
      return visit(x.values<E5M2>());
    default:
      Fail("expected a tensor of floats, got ", Name(x.dtype()));
  }
}

}  // namespace

bool MayBeNotFinite(DType dtype) { return IsFloat(dtype) || IsFloat8(dtype); }

TensorRange RangeOf(const Tensor& x) {
  return VisitFloats(x, [](auto values) {
    TensorRange range;
    bool any = false;
    for (size_t i = 0; i < values.size(); ++i) {
      const double number = NumberOf(values[i]);
      if (!std::isfinite(number)) {
        if (range.first < 0) range.first = static_cast<int64_t>(i);
        ++(std::isnan(number) ? range.nans : range.infinite);
        continue;
      }
      range.min = any ? std::min(range.min, number) : number;
      range.max = any ? std::max(range.max, number) : number;
      any = true;
    }
    range.amax = std::max(std::abs(range.min), std::abs(range.max));
    return range;
  });
}

int64_t FirstNotFinite(const Tensor& x) {
  return VisitFloats(x, [](auto values) {
    constexpr size_t kBlock = 1024;  // without a branch for each element
    for (size_t begin = 0; begin < values.size(); begin += kBlock) {
      const auto block =
          values.subspan(begin, std::min(kBlock, values.size() - begin));
      const auto is_finite = [](auto e) { return std::isfinite(NumberOf(e)); };
      bool all = true;
      for (auto element : block) all &= is_finite(element);
      if (all) continue;
      return static_cast<int64_t>(
          begin +
          static_cast<size_t>(std::ranges::find_if_not(block, is_finite) -
                              block.begin()));
    }
    return int64_t{-1};
  });
}

}  // namespace onnx_fp8
