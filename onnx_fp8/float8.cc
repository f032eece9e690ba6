// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/float8.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Value of a format with `kMantissa` mantissa bits and exponent bias `kBias`,
// without its special codes.
template <int kMantissa, int kBias>
float DecodeFinite(uint32_t bits, int width) {
  uint32_t magnitude = bits & ((1u << (width - 1)) - 1);
  uint32_t exponent = magnitude >> kMantissa;
  uint32_t fraction = magnitude & ((1u << kMantissa) - 1);
  float value =
      exponent == 0
          ? std::ldexp(static_cast<float>(fraction), 1 - kBias - kMantissa)
          : std::ldexp(static_cast<float>(fraction | (1u << kMantissa)),
                       static_cast<int>(exponent) - kBias - kMantissa);
  return (bits >> (width - 1)) & 1 ? -value : value;
}

// Magnitude bits of |x| rounded to nearest even in a format with kMantissa
// mantissa bits and bias kBias; the result may run past the largest finite
// code. REQUIRES: x finite, x >= 0.
template <int kMantissa, int kBias>
uint32_t RoundMagnitude(float x) {
  constexpr int kDrop = 23 - kMantissa;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if (bits >= kMinNormal) {
    bits += ((1u << (kDrop - 1)) - 1) + ((bits >> kDrop) & 1);
    return (bits >> kDrop) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
  }
  // Subnormal: adding 2^k, whose last mantissa bit is the format's smallest
  // step, lets the FPU round; the result's low bits are the code.
  constexpr float kMagic = std::bit_cast<float>(
      static_cast<uint32_t>(127 + 1 - kBias + kDrop) << 23);
  return std::bit_cast<uint32_t>(x + kMagic) - std::bit_cast<uint32_t>(kMagic);
}

}  // namespace

float Float8Max(DType format) {
  Check(IsFloat8(format), "expected an 8-bit float format, got ", Name(format));
  return format == DType::kE4M3 ? kE4M3Max : kE5M2Max;
}

float Decode(Float16 x) {
  if ((x.bits & 0x7C00) == 0x7C00) {
    if (x.bits & 0x03FF) return kNaN;
    return x.bits & 0x8000 ? -INFINITY : INFINITY;
  }
  return DecodeFinite<10, 15>(x.bits, 16);
}

float Decode(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

float Decode(E4M3 x) {
  if ((x.bits & 0x7F) == 0x7F) return kNaN;
  return DecodeFinite<3, 7>(x.bits, 8);
}

float Decode(E5M2 x) {
  if ((x.bits & 0x7C) == 0x7C) {
    if (x.bits & 0x03) return kNaN;
    return x.bits & 0x80 ? -INFINITY : INFINITY;
  }
  return DecodeFinite<2, 15>(x.bits, 8);
}

float Decode(E8M0 x) {
  if (x.bits == 255) return kNaN;
  return std::ldexp(1.0f, static_cast<int>(x.bits) - 127);
}

Float16 EncodeFloat16(float x) {
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7E00)};
  float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7C00)};
  return {static_cast<uint16_t>(sign | RoundMagnitude<10, 15>(magnitude))};
}

BFloat16 EncodeBFloat16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((bits >> 16) | 0x0040)};
  bits += 0x7FFF + ((bits >> 16) & 1);
  return {static_cast<uint16_t>(bits >> 16)};
}

E4M3 EncodeE4M3(float x) {
  uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return {static_cast<uint8_t>(sign | 0x7F)};
  float magnitude = std::fabs(x);
  if (magnitude >= kE4M3Max) return {static_cast<uint8_t>(sign | 0x7E)};
  return {static_cast<uint8_t>(sign | RoundMagnitude<3, 7>(magnitude))};
}

E5M2 EncodeE5M2(float x) {
  uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return {static_cast<uint8_t>(sign | 0x7E)};
  float magnitude = std::fabs(x);
  if (magnitude >= kE5M2Max) return {static_cast<uint8_t>(sign | 0x7B)};
  return {static_cast<uint8_t>(sign | RoundMagnitude<2, 15>(magnitude))};
}

E8M0 EncodeE8M0(float x) {
  if (!(x >= 0) || std::isinf(x)) return {255};
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t exponent = bits >> 23;
  if (exponent == 0) {
    // Subnormals up to 2^-127 are code 0, those above it code 1.
    return {static_cast<uint8_t>(bits > 0x00400000 ? 1 : 0)};
  }
  if (bits & 0x007FFFFF) ++exponent;
  return {static_cast<uint8_t>(exponent >= 255 ? 255 : exponent)};
}

}  // namespace onnx_fp8
