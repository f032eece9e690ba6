// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/vector_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/lanes.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {
namespace {

template <typename T>
T Max(const T* x, int64_t n) {
  T result = -std::numeric_limits<T>::infinity();
  T* out = &result;
  OnBestIsa([=] {
    // A NaN in m stays: every comparison with it is false. || would be a branch
    // and keep the loop from being vectorized.
    auto larger = [](T m, T v) { return ((v > m) | (v != v)) ? v : m; };
    T lane[kCompareLanes];
    for (T& m : lane) m = -std::numeric_limits<T>::infinity();
    int64_t i = 0;
    for (; i + kCompareLanes <= n; i += kCompareLanes) {
      for (int64_t j = 0; j < kCompareLanes; ++j) {
        lane[j] = larger(lane[j], x[i + j]);
      }
    }
    for (; i < n; ++i) lane[0] = larger(lane[0], x[i]);
    for (T m : lane) lane[0] = larger(lane[0], m);
    *out = lane[0];
  });
  return result;
}

template <typename T>
double ExpShifted(const T* x, T shift, T* y, int64_t n) {
  constexpr int64_t kBlock = 256;
  double result = 0;
  double* out = &result;
  OnBestIsa([=] {
    double total = 0;
    T buffer[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      int64_t count = std::min(kBlock, n - begin);
      T* e = y ? y + begin : buffer;
      ONNX_FP8_IVDEP
      for (int64_t i = 0; i < count; ++i)
        e[i] = math::QuickExp(x[begin + i] - shift);
      total += LaneSum(count, [=](int64_t i) -> double { return e[i]; });
    }
    *out = total;
  });
  return result;
}

template <typename T>
double Dot(const T* x, const T* y, int64_t n) {
  double result = 0;
  double* out = &result;
  OnBestIsa([=] {
    *out = LaneSum(n, [=](int64_t i) {
      return static_cast<double>(x[i]) * static_cast<double>(y[i]);
    });
  });
  return result;
}

}  // namespace

void VectorExp(const float* x, float* y, int64_t n) {
  OnBestIsa([=] {
    ONNX_FP8_IVDEP  // y is x or does not overlap it
    for (int64_t i = 0; i < n; ++i) y[i] = math::Exp(x[i]);
  });
}
void VectorExp(const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = math::Exp(x[i]);
}

float VectorMax(const float* x, int64_t n) { return Max(x, n); }
double VectorMax(const double* x, int64_t n) { return Max(x, n); }

double VectorExpShifted(const float* x, float shift, float* y, int64_t n) {
  return ExpShifted(x, shift, y, n);
}
double VectorExpShifted(const double* x, double shift, double* y, int64_t n) {
  return ExpShifted(x, shift, y, n);
}

void VectorMultiply(const float* x, const float* y, float* z, int64_t n) {
  OnBestIsa([=] {
    ONNX_FP8_IVDEP  // z is an operand or overlaps none
    for (int64_t i = 0; i < n; ++i) z[i] = x[i] * y[i];
  });
}

double VectorDot(const float* x, const float* y, int64_t n) {
  return Dot(x, y, n);
}
double VectorDot(const double* x, const double* y, int64_t n) {
  return Dot(x, y, n);
}

}  // namespace onnx_fp8
