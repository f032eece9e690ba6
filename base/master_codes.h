// SPDX-License-Identifier: Apache-2.0
//
// A float as a bfloat16 and a signed correction of 8 or 16 bits: the float's
// bits are the bfloat16's bits, followed by zeros, plus the correction. A
// correction of 16 bits restores every float. The bfloat16 is then the nearest
// one; a float in the middle of two gets the one that is farther from zero.
// (If it got the even one, two floats would have one pair.) For a correction of
// 8 bits the float is rounded first: it keeps 8 of the 16 bits that a bfloat16
// lacks, and in the middle it becomes even. NaN becomes the canonical one of
// its sign. GPUs call constexpr functions, too. The bodies of
// graph/schemas/masters.cc are the specification.
#pragma once

#include <bit>
#include <cstdint>

namespace onnx_fp8 {

// NaN of many patterns becomes one. (The upper half of a pattern could read as
// infinity or as zero.)
constexpr uint32_t CanonicalNan(uint32_t bits) {
  const uint32_t sign = bits & 0x80000000;
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? sign | 0x7FC00000 : bits;
}

// REQUIRES: kBits is 8 or 16.
template <int kBits>
struct MasterCode {
  uint16_t half;       // a bfloat16
  int32_t correction;  // kBits, signed
};

template <int kBits>
constexpr MasterCode<kBits> EncodeMaster(uint32_t bits) {
  constexpr int kDropped = 16 - kBits;
  constexpr uint32_t kUnit = uint32_t{1} << kDropped;
  uint32_t kept = CanonicalNan(bits);
  if constexpr (kDropped > 0) {
    kept += kUnit / 2 - 1 + ((kept >> kDropped) & 1);
    kept &= ~(kUnit - 1);
  }
  const uint32_t half = (kept + 0x8000) >> 16;
  const uint32_t rest = kept - (half << 16);
  return {static_cast<uint16_t>(half), static_cast<int32_t>(rest) >> kDropped};
}

// The bits of the float.
template <int kBits>
constexpr uint32_t DecodeMaster(uint16_t half, int32_t correction) {
  return (uint32_t{half} << 16) +
         (static_cast<uint32_t>(correction) << (16 - kBits));
}

// Arrays of them. REQUIRES: T is int8_t or int16_t.
template <typename T>
void EncodeMasters(const float* x, int64_t n, uint16_t* half, T* correction) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    const auto code = EncodeMaster<kBits>(std::bit_cast<uint32_t>(x[i]));
    half[i] = code.half;
    correction[i] = static_cast<T>(code.correction);
  }
}

template <typename T>
void DecodeMasters(const uint16_t* half, const T* correction, int64_t n,
                   float* x) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::bit_cast<float>(DecodeMaster<kBits>(half[i], correction[i]));
  }
}

}  // namespace onnx_fp8
