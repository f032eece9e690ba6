// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions that compilers can vectorize: no branches, no calls. The
// float versions compute in double to a relative error below 2e-9, so that a
// result is within 0.52 ulp (also for subnormal and special values) and
// cancellation does no harm. The double versions are the C++ library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace onnx_fp8::math {

// e^x = t + t q, where t is a power of two and q in [-0.3, 0.42]; x is clamped
// to the range of double. Taylor's series to r^8 on |r| <= ln(2)/2: the error
// is 6e-10 of r.
struct ExpParts {
  double t, q;
};
inline ExpParts SplitExp(double x) {
  x = x < -708.0 ? -708.0 : x;
  x = x > 709.0 ? 709.0 : x;
  // Adding 1.5 * 2^52 rounds to an integer, which then lies in the low bits.
  constexpr double kRound = 0x1.8p52;
  double shifted = x * 1.4426950408889634 + kRound;
  double r = x - (shifted - kRound) * 0.6931471805599453;
  double q = 1.0 / 40320;
  q = q * r + 1.0 / 5040;
  q = q * r + 1.0 / 720;
  q = q * r + 1.0 / 120;
  q = q * r + 1.0 / 24;
  q = q * r + 1.0 / 6;
  q = q * r + 0.5;
  q = q * r + 1.0;
  q = q * r;
  uint64_t bits =
      (std::bit_cast<uint64_t>(shifted) << 52) + std::bit_cast<uint64_t>(1.0);
  return {std::bit_cast<double>(bits), q};
}

inline double FastExp(double x) {
  ExpParts p = SplitExp(x);
  double y = p.t + p.t * p.q;
  y = x < -708.0 ? 0.0 : y;
  return x > 709.0 ? std::numeric_limits<double>::infinity() : y;
}

// x y + z rounded once: one instruction if OnIsa chose a set that has it,
// otherwise a call with the same result.
inline float MultiplyAdd(float x, float y, float z) {
  return __builtin_fmaf(x, y, z);
}

// e^x in float arithmetic, for loops that nothing else slows down. Relative
// error below 2e-7, that is 2 ulp; 0 below -87.7, where results are subnormal;
// infinity above 88.4, a little before the end of the floats.
inline float FloatExp(float x) {
  // A NaN is neither smaller nor larger. At the bounds t is 0 or infinity.
  float y = x < -88.0f ? -88.0f : x;
  y = y > 89.0f ? 89.0f : y;
  constexpr float kRound = 0x1.8p23f;
  float shifted = MultiplyAdd(y, 1.44269504f, kRound);
  float n = shifted - kRound;
  // ln(2) in two parts; n times the first part is exact.
  float r = MultiplyAdd(n, -0x1.62e4p-1f, y);
  r = MultiplyAdd(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040;
  p = MultiplyAdd(p, r, 1.0f / 720);
  p = MultiplyAdd(p, r, 1.0f / 120);
  p = MultiplyAdd(p, r, 1.0f / 24);
  p = MultiplyAdd(p, r, 1.0f / 6);
  p = MultiplyAdd(p, r, 0.5f);
  p = MultiplyAdd(p, r, 1.0f);
  p = MultiplyAdd(p, r, 1.0f);
  uint32_t bits =
      (std::bit_cast<uint32_t>(shifted) << 23) + std::bit_cast<uint32_t>(1.0f);
  float t = std::bit_cast<float>(bits);  // 2^n
  return t * p;
}

// For such loops over T: for floats as above, for doubles the C++ library's.
inline float QuickExp(float x) { return FloatExp(x); }
inline double QuickExp(double x) { return std::exp(x); }

// 2^x in float arithmetic for x <= 127, with a relative error below 2e-7; 0
// below -127. The polynomial of 2^r on |r| <= 1/2 is e^(r ln 2) by weighted
// least squares, with an error of 1e-7.
inline float FloatExp2(float x) {
  float y = x < -127.0f ? -127.0f : x;  // there t is 0; a NaN stays
  constexpr float kRound = 0x1.8p23f;
  float shifted = y + kRound;
  float r = y - (shifted - kRound);  // exact
  float p = 0.0013264673f;
  p = MultiplyAdd(p, r, 0.009671555f);
  p = MultiplyAdd(p, r, 0.055507343f);
  p = MultiplyAdd(p, r, 0.24022241f);
  p = MultiplyAdd(p, r, 0.693147f);
  p = MultiplyAdd(p, r, 1.0f);
  uint32_t bits =
      (std::bit_cast<uint32_t>(shifted) << 23) + std::bit_cast<uint32_t>(1.0f);
  return std::bit_cast<float>(bits) * p;
}

inline double FastExpm1(double x) {
  ExpParts p = SplitExp(x);
  return p.t * p.q + (p.t - 1.0);
}

// 2 artanh(s) = log((1+s)/(1-s)) for s in [0, 1/3], to s^19: the error is
// 1e-10 of s.
inline double TwiceArtanh(double s) {
  double z = s * s;
  double p = 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  return 2.0 * s * p;
}

// log(1 + u) for u in [0, 1].
inline double FastLog1p(double u) { return TwiceArtanh(u / (2.0 + u)); }

// log(x) for a positive normal x: x = 2^e m with m in [sqrt(1/2), sqrt(2)).
inline double FastLog(double x) {
  constexpr uint64_t kOne = std::bit_cast<uint64_t>(1.0);
  constexpr uint64_t kSqrtHalf = std::bit_cast<uint64_t>(0.7071067811865476);
  uint64_t bits = std::bit_cast<uint64_t>(x);
  uint64_t biased = (bits + (kOne - kSqrtHalf)) >> 52;  // e + 1023
  double m = std::bit_cast<double>(bits - (biased << 52) + kOne);
  // An integer below 2^52, as the low bits of 2^52 + that integer.
  double e = std::bit_cast<double>(biased | std::bit_cast<uint64_t>(0x1p52)) -
             (0x1p52 + 1023.0);
  double f = m - 1.0;
  return e * 0.6931471805599453 + TwiceArtanh(f / (2.0 + f));
}

// e^(z²) erfc(z) for z in [0, 11]: weighted least squares in Chebyshev points
// of u = (z-4)/(z+4); relative error 2.1e-10.
inline double FastErfcx(double z) {
  double u = (z - 4.0) / (z + 4.0);
  double p = 1.0153971815486020e-04;
  p = p * u - 2.8152917091555303e-05;
  p = p * u - 8.1498516270260709e-04;
  p = p * u + 4.0587429901782135e-03;
  p = p * u - 1.2839777480735396e-02;
  p = p * u + 3.1299780309030988e-02;
  p = p * u - 6.3108332305688755e-02;
  p = p * u + 1.0896309801090136e-01;
  p = p * u - 1.6425778792697704e-01;
  p = p * u + 2.1871968138906381e-01;
  p = p * u - 2.5906804924458193e-01;
  p = p * u + 1.3699945761607607e-01;
  return p;
}

// Cumulative distribution and density of the standard normal distribution, with
// the tail cut to 0 beyond |x| = 15, the end of the floats.
struct Normal {
  double cdf, pdf;
};
inline Normal FastNormal(double x) {
  double z = std::fabs(x) * 0.7071067811865476;
  double e = z > 10.7 ? 0.0 : FastExp(-z * z);
  z = z > 10.7 ? 10.7 : z;
  double tail = 0.5 * e * FastErfcx(z);
  return {x < 0.0 ? tail : 1.0 - tail, e * 0.3989422804014327};
}

// The same in float arithmetic: relative errors below 6e-7, that is 5 ulp, also
// in the tails; 0 beyond |x| = 13.
struct FloatNormalValues {
  float cdf, pdf;
};
inline FloatNormalValues FloatNormal(float x) {
  float a = std::fabs(x);
  a = a > 15.0f ? 15.0f : a;
  // a² = square + error, exactly.
  float square = a * a;
  float error = MultiplyAdd(a, a, -square);
  float e = FloatExp(square * -0.5f);
  e = MultiplyAdd(e, error * -0.5f, e);
  constexpr float kFour = 5.6568542f;  // 4 sqrt(2): z = a / sqrt(2)
  float u = (a - kFour) / (a + kFour);
  float p = 1.0153972e-04f;  // FastErfcx
  p = MultiplyAdd(p, u, -2.8152917e-05f);
  p = MultiplyAdd(p, u, -8.1498516e-04f);
  p = MultiplyAdd(p, u, 4.0587430e-03f);
  p = MultiplyAdd(p, u, -1.2839777e-02f);
  p = MultiplyAdd(p, u, 3.1299780e-02f);
  p = MultiplyAdd(p, u, -6.3108332e-02f);
  p = MultiplyAdd(p, u, 1.0896310e-01f);
  p = MultiplyAdd(p, u, -1.6425779e-01f);
  p = MultiplyAdd(p, u, 2.1871968e-01f);
  p = MultiplyAdd(p, u, -2.5906805e-01f);
  p = MultiplyAdd(p, u, 1.3699946e-01f);
  float tail = 0.5f * e * p;
  return {x < 0.0f ? tail : 1.0f - tail, e * 0.39894228f};
}

// Kernels with results of type T compute with these, in double.
template <typename T>
struct Wide;

template <>
struct Wide<float> {
  static double Exp(double x) { return FastExp(x); }
  static double Expm1(double x) { return FastExpm1(x); }
  static double Log1p(double u) { return FastLog1p(u); }  // u in [0, 1]
  static Normal StandardNormal(double x) { return FastNormal(x); }
};

template <>
struct Wide<double> {
  static double Exp(double x) { return std::exp(x); }
  static double Expm1(double x) { return std::expm1(x); }
  static double Log1p(double u) { return std::log1p(u); }
  static Normal StandardNormal(double x) {
    return {0.5 * std::erfc(-x * 0.7071067811865476),
            std::exp(-0.5 * x * x) * 0.3989422804014327};
  }
};

inline float Exp(float x) { return static_cast<float>(FastExp(x)); }
inline double Exp(double x) { return std::exp(x); }

inline float Log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float y = static_cast<float>(FastLog(x));
  y = x == 0.0f ? -kInfinity : y;
  y = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
  return x < kInfinity ? y : x;
}
inline double Log(double x) { return std::log(x); }

inline float Tanh(float x) {
  double m = FastExpm1(2.0 * static_cast<double>(x));
  return std::copysign(static_cast<float>(m / (m + 2.0)), x);
}
inline double Tanh(double x) { return std::tanh(x); }

template <typename T>
T Sigmoid(T x) {
  double e = Wide<T>::Exp(-static_cast<double>(x));
  return static_cast<T>(1.0 / (1.0 + e));
}

// Taylor's series to z^17 below 1/2, where 1 - erfc(z) cancels.
inline float Erf(float x) {
  double z = std::fabs(static_cast<double>(x));
  double big = z > 10.7 ? 10.7 : z;
  double y = 1.0 - FastExp(-big * big) * FastErfcx(big);
  double w = z * z;
  double p = 1.0 / (40320.0 * 17);
  p = p * w - 1.0 / (5040.0 * 15);
  p = p * w + 1.0 / (720.0 * 13);
  p = p * w - 1.0 / (120.0 * 11);
  p = p * w + 1.0 / (24.0 * 9);
  p = p * w - 1.0 / (6.0 * 7);
  p = p * w + 1.0 / (2.0 * 5);
  p = p * w - 1.0 / 3.0;
  p = p * w + 1.0;
  y = z < 0.5 ? 1.1283791670955126 * z * p : y;
  return std::copysign(static_cast<float>(y), x);
}
inline double Erf(double x) { return std::erf(x); }

}  // namespace onnx_fp8::math
