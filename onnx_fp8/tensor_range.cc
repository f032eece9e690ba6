// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor_range.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

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

// The bits of the exponents of the elements in 8 bytes; 0: not known here.
uint64_t ExponentsOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return 0x7f8000007f800000;
    case DType::kDouble:
      return 0x7ff0000000000000;
    case DType::kFloat16:
      return 0x7c007c007c007c00;
    case DType::kBFloat16:
      return 0x7f807f807f807f80;
    default:
      return 0;
  }
}

// Whether no element has all bits of its exponent set, 8 bytes at a time. False
// if bytes are left over.
bool AllFinite(std::span<const std::byte> bytes, uint64_t exponents) {
  // Adding the lowest bit of a full exponent carries into the sign.
  const uint64_t lowest = exponents & ~(exponents << 1);
  const uint64_t signs = (exponents << 1) & ~exponents;
  uint64_t carried = 0;
  for (size_t at = 0; at + sizeof carried <= bytes.size();
       at += sizeof carried) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    carried |= (word & exponents) + lowest;
  }
  return (carried & signs) == 0 && bytes.size() % sizeof carried == 0;
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
  const uint64_t exponents = ExponentsOf(x.dtype());
  return VisitFloats(x, [&](auto values) {
    constexpr size_t kBlock = 1024;
    for (size_t begin = 0; begin < values.size(); begin += kBlock) {
      const auto block =
          values.subspan(begin, std::min(kBlock, values.size() - begin));
      if (exponents != 0 && AllFinite(std::as_bytes(block), exponents)) {
        continue;
      }
      for (size_t i = 0; i < block.size(); ++i) {
        if (!std::isfinite(NumberOf(block[i]))) {
          return static_cast<int64_t>(begin + i);
        }
      }
    }
    return int64_t{-1};
  });
}

}  // namespace onnx_fp8
