// SPDX-License-Identifier: Apache-2.0
//
// Numbers to FP8 codes and back, with the bits of the CPU and of the ops'
// bodies: to nearest, ties to even, too large values to the largest one. NaN
// keeps its sign; its code is 0x7F in E4M3 and 0x7E in E5M2.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "onnx_fp8/dtype.h"
#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

template <bool kE4M3>
__device__ inline uint32_t Encode(float x) {
  uint32_t bits = __float_as_uint(x);
  uint32_t sign = bits >> 24 & 0x80u;
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return sign | (kE4M3 ? 0x7Fu : 0x7Eu);
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE,
                               kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

// The code of the product of x and the factor, which is NaN. A GPU drops the
// sign of such a product. The code has the sign that a CPU gives: x's if x is
// NaN, else the factor's if it is NaN, else minus (0 times infinity).
__device__ inline uint32_t CodeOfNaN(bool e4m3, float x, float factor) {
  float from = x != x ? x : factor != factor ? factor : -1.0f;
  return (__float_as_uint(from) >> 24 & 0x80u) | (e4m3 ? 0x7Fu : 0x7Eu);
}

// The code of the product of x and the factor.
template <bool kE4M3>
__device__ inline uint32_t EncodeProduct(float x, float factor) {
  float y = x * factor;
  if (y != y) return CodeOfNaN(kE4M3, x, factor);
  return __nv_cvt_float_to_fp8(y, __NV_SATFINITE,
                               kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

// The codes of four numbers: the first one's is the lowest byte. The code of
// NaN is another one than Encode's.
template <bool kE4M3>
__device__ inline uint32_t EncodeNumbers(float a, float b, float c, float d) {
  constexpr auto kTo = kE4M3 ? __NV_E4M3 : __NV_E5M2;
  uint32_t low =
      __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kTo);
  uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kTo);
  return low | high << 16;
}

// EncodeProduct's codes of four numbers, the first one's in the lowest byte.
// Code that NaN alone needs is there once for both formats: kernels repeat it
// for each vector of a thread.
__device__ inline uint32_t EncodeProducts(bool e4m3, const float (&x)[4],
                                          float factor) {
  float a = x[0] * factor, b = x[1] * factor;
  float c = x[2] * factor, d = x[3] * factor;
  uint32_t codes =
      e4m3 ? EncodeNumbers<true>(a, b, c, d) : EncodeNumbers<false>(a, b, c, d);
  // NaN if one of them is. It may also be Inf - Inf, which changes no code.
  float any = (a + b) + (c + d);
  if (any == any) return codes;
  ONNX_FP8_UNROLL
  for (int k = 0; k < 4; ++k) {
    float y = x[k] * factor;
    if (y == y) continue;
    codes &= ~(0xFFu << 8 * k);
    codes |= CodeOfNaN(e4m3, x[k], factor) << 8 * k;
  }
  return codes;
}

template <bool kE4M3>
__device__ inline float Decode(uint8_t code) {
  return __half2float(
      __half(__nv_cvt_fp8_to_halfraw(code, kE4M3 ? __NV_E4M3 : __NV_E5M2)));
}

}  // namespace onnx_fp8::cuda
