// SPDX-License-Identifier: Apache-2.0
//
// The only host code that knows the bits of the small float formats.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

inline constexpr float kE4M3Max = 448.0f;    // S.1111.110
inline constexpr float kE5M2Max = 57344.0f;  // S.11110.11

// Largest finite value of kE4M3 or kE5M2.
float Float8Max(DType format);

float Decode(Float16 x);
float Decode(BFloat16 x);
float Decode(E4M3 x);  // float8e4m3fn: no infinity, S.1111.111 is NaN
float Decode(E5M2 x);  // float8e5m2: IEEE-like, with infinities
float Decode(E8M0 x);  // 2^(bits-127); 255 is NaN

// Round to nearest, ties to even. Float16/BFloat16 overflow to infinity.
Float16 EncodeFloat16(float x);
BFloat16 EncodeBFloat16(float x);

// Round to nearest, ties to even, saturating: anything beyond the largest
// finite value, infinities included, becomes that value with its sign; NaN
// stays NaN (0x7F/0xFF for E4M3, 0x7E|sign for E5M2). Equals ONNX
// Cast(saturate=1), and ml_dtypes after clipping.
E4M3 EncodeE4M3(float x);
E5M2 EncodeE5M2(float x);

// Smallest power of two >= x (rounds up); NaN for NaN, negative or Inf.
E8M0 EncodeE8M0(float x);

}  // namespace onnx_fp8
