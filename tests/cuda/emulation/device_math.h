// SPDX-License-Identifier: Apache-2.0
//
// Functions of numbers. They are exact here where the device rounds correctly.
// The others are as far off as the tables of the CUDA programming guide allow,
// by a draw of the numerics.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace onnx_fp8::emulation {

// A float at most `ulps` units of the last place from `exact`.
float Inexact(double exact, int ulps);
double InexactDouble(double exact, int ulps);

}  // namespace onnx_fp8::emulation

// ---- functions with errors --------------------------------------------------
// In our namespace they hide the C library's.

namespace onnx_fp8 {

// NAMEf(float), NAME(float) and NAME(double), with their errors.
#define ONNX_FP8_INEXACT(name, ulps, double_ulps)               \
  inline float name##f(float x) {                               \
    return emulation::Inexact(std::name(double{x}), ulps);      \
  }                                                             \
  inline float name(float x) { return name##f(x); }             \
  inline double name(double x) {                                \
    return emulation::InexactDouble(std::name(x), double_ulps); \
  }
ONNX_FP8_INEXACT(exp, 2, 1)
ONNX_FP8_INEXACT(exp2, 2, 1)
ONNX_FP8_INEXACT(expm1, 1, 1)
ONNX_FP8_INEXACT(log, 1, 1)
ONNX_FP8_INEXACT(log2, 1, 1)
ONNX_FP8_INEXACT(log10, 2, 1)
ONNX_FP8_INEXACT(log1p, 1, 1)
ONNX_FP8_INEXACT(sin, 2, 2)
ONNX_FP8_INEXACT(cos, 2, 2)
ONNX_FP8_INEXACT(tan, 4, 2)
ONNX_FP8_INEXACT(asin, 4, 2)
ONNX_FP8_INEXACT(acos, 3, 2)
ONNX_FP8_INEXACT(atan, 2, 2)
ONNX_FP8_INEXACT(sinh, 3, 2)
ONNX_FP8_INEXACT(cosh, 2, 1)
ONNX_FP8_INEXACT(tanh, 2, 1)
ONNX_FP8_INEXACT(asinh, 3, 3)
ONNX_FP8_INEXACT(acosh, 4, 3)
ONNX_FP8_INEXACT(atanh, 3, 2)
ONNX_FP8_INEXACT(erf, 2, 2)
ONNX_FP8_INEXACT(erfc, 4, 5)
ONNX_FP8_INEXACT(cbrt, 1, 1)
#undef ONNX_FP8_INEXACT

inline float powf(float x, float y) {
  return emulation::Inexact(std::pow(double{x}, double{y}), 4);
}
inline float pow(float x, float y) { return powf(x, y); }
inline double pow(double x, double y) {
  return emulation::InexactDouble(std::pow(x, y), 2);
}
inline float rsqrtf(float x) {
  return emulation::Inexact(1.0 / std::sqrt(double{x}), 2);
}
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) {
  return emulation::InexactDouble(1.0 / std::sqrt(x), 1);
}
inline void sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}

// Intrinsics. Where the guide bounds their error as an absolute one, this is
// the error of results near 1.
inline float __expf(float x) {
  auto ulps = 2 + static_cast<int>(std::fmin(std::fabs(1.173f * x), 200.0f));
  return emulation::Inexact(std::exp(double{x}), ulps);
}
inline float __exp10f(float x) {
  auto ulps = 2 + static_cast<int>(std::fmin(std::fabs(2.97f * x), 200.0f));
  return emulation::Inexact(std::pow(10.0, double{x}), ulps);
}
inline float __logf(float x) {
  return emulation::Inexact(std::log(double{x}), 3);
}
inline float __log2f(float x) {
  return emulation::Inexact(std::log2(double{x}), 2);
}
inline float __sinf(float x) {
  return emulation::Inexact(std::sin(double{x}), 4);
}
inline float __cosf(float x) {
  return emulation::Inexact(std::cos(double{x}), 4);
}
inline float __powf(float x, float y) {
  return emulation::Inexact(std::pow(double{x}, double{y}), 8);
}
inline float __fdividef(float x, float y) {
  return emulation::Inexact(double{x} / double{y}, 2);
}

}  // namespace onnx_fp8

// ---- functions without errors -----------------------------------------------

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
// 1 / sqrt(x), rounded once.
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0L / std::sqrt(static_cast<long double>(x)));
}
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) {
  return std::fma(x, y, z);
}
// In [0, 1]; NaN becomes 0.
inline float __saturatef(float x) {
  return x > 0.0f ? std::fmin(x, 1.0f) : 0.0f;
}

// ---- bits and conversions ---------------------------------------------------

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
// The position of the lowest bit, counted from 1; 0 if there is none.
inline int __ffs(int x) {
  return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0;
}
inline int __ffsll(long long x) {
  return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x,
                                     unsigned long long y) {
  return static_cast<unsigned long long>(
      static_cast<unsigned __int128>(x) * y >> 64);
}

template <typename T>
T __ldg(const T* p) {
  return *p;
}

// ---- min and max ------------------------------------------------------------

#define ONNX_FP8_MIN_MAX(type, a, b)                                           \
  inline type min(a x, b y) {                                                  \
    return static_cast<type>(y) < static_cast<type>(x) ? static_cast<type>(y)  \
                                                       : static_cast<type>(x); \
  }                                                                            \
  inline type max(a x, b y) {                                                  \
    return static_cast<type>(x) < static_cast<type>(y) ? static_cast<type>(y)  \
                                                       : static_cast<type>(x); \
  }
ONNX_FP8_MIN_MAX(int, int, int)
ONNX_FP8_MIN_MAX(unsigned, unsigned, unsigned)
ONNX_FP8_MIN_MAX(unsigned, int, unsigned)
ONNX_FP8_MIN_MAX(unsigned, unsigned, int)
ONNX_FP8_MIN_MAX(long, long, long)
ONNX_FP8_MIN_MAX(unsigned long, unsigned long, unsigned long)
ONNX_FP8_MIN_MAX(unsigned long, long, unsigned long)
ONNX_FP8_MIN_MAX(unsigned long, unsigned long, long)
ONNX_FP8_MIN_MAX(long long, long long, long long)
ONNX_FP8_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
ONNX_FP8_MIN_MAX(unsigned long long, long long, unsigned long long)
ONNX_FP8_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef ONNX_FP8_MIN_MAX

// They return the number if the other operand is NaN.
inline float min(float x, float y) { return std::fmin(x, y); }
inline float max(float x, float y) { return std::fmax(x, y); }
inline double min(double x, double y) { return std::fmin(x, y); }
inline double max(double x, double y) { return std::fmax(x, y); }
inline double min(float x, double y) { return std::fmin(double{x}, y); }
inline double max(float x, double y) { return std::fmax(double{x}, y); }
inline double min(double x, float y) { return std::fmin(x, double{y}); }
inline double max(double x, float y) { return std::fmax(x, double{y}); }
