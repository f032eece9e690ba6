// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// The functions below have no branches, so loops over them are vectorized.

inline uint32_t WidenBFloat16(uint16_t x) {
  return static_cast<uint32_t>(x) << 16;
}

inline uint16_t NarrowBFloat16(uint32_t bits) {
  auto value = std::bit_cast<float>(bits);
  uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  uint32_t nan = bits | 0x00400000;
  return static_cast<uint16_t>((value != value ? nan : rounded) >> 16);
}

inline uint32_t WidenFloat16(uint16_t x) {
  uint32_t magnitude = x & 0x7FFFU, sign = static_cast<uint32_t>(x & 0x8000)
                                           << 16;
  uint32_t normal = (magnitude << 13) + 0x38000000;
  uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(magnitude) *
                                           0x1p-24f);  // subnormal
  uint32_t result = magnitude < 0x0400 ? small : normal;
  result = magnitude == 0x7C00 ? 0x7F800000 : result;
  result |= sign;
  return magnitude > 0x7C00 ? 0x7FC00000 : result;
}

inline uint16_t NarrowFloat16(uint32_t bits) {
  uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
  uint32_t normal =
      (magnitude - 0x38000000 + 0x0FFF + ((magnitude >> 13) & 1)) >> 13;
  // The last bit of 0.5 is the smallest float16: the addition rounds to it.
  uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      0x3F000000;
  uint32_t result = magnitude < 0x38800000 ? small : normal;
  result = magnitude >= 0x477FF000 ? 0x7C00 : result;
  result = magnitude > 0x7F800000 ? 0x7E00 : result;
  return static_cast<uint16_t>(sign | result);
}

// An element that is kept in 16 bits, for loops that read it where a float
// could stand.
struct KeptBFloat16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(WidenBFloat16(bits)); }
};
struct KeptFloat16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(WidenFloat16(bits)); }
};

// y = x, for x of the 16-bit dtype `from`. All instruction sets give the bits
// of Decode().
void WidenFloats(DType from, const void* x, float* y, int64_t n);

// y = x, rounded to the 16-bit dtype `to`: to the nearest, ties to even, beyond
// the largest number to infinity. A NaN stays one.
void NarrowFloats(DType to, const float* x, void* y, int64_t n);

// n floats from element `at` of x on: x itself, or widened into `buffer` if x
// is kept in the 16-bit `dtype`.
inline const float* ReadFloats(DType dtype, const void* x, int64_t at,
                               int64_t n, float* buffer) {
  if (!IsHalf(dtype)) return static_cast<const float*>(x) + at;
  WidenFloats(dtype, static_cast<const uint16_t*>(x) + at, buffer, n);
  return buffer;
}

// y = x, rounded to the 16-bit dtype `to`; both may be the same memory.
void RoundFloats(DType to, const float* x, float* y, int64_t n);

}  // namespace onnx_fp8
