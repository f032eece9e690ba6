// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "providers/cpu/math/elementary.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Every 4093rd float of both signs, so all exponents, and the special ones.
std::vector<float> Sweep() {
  std::vector<float> x = {0.0f, -0.0f,       kInfinity, -kInfinity, kNaN,
                          0.5f, 0.49999997f, 1.0f,      -1.0f};
  for (uint64_t bits = 1; bits < 0xFFFFFFFFu; bits += 4093) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return x;
}

// Distance in units of the last place of `want` rounded to float.
double UlpError(float got, double want) {
  auto rounded = static_cast<float>(want);
  if (std::isnan(rounded) || std::isnan(got)) {
    return std::isnan(rounded) && std::isnan(got) ? 0 : 1e30;
  }
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e30;
  float magnitude = std::fabs(rounded);
  float next = std::nextafter(magnitude, kInfinity);
  double ulp =
      std::isinf(next) ? 0x1p104 : static_cast<double>(next) - magnitude;
  return std::fabs(got - want) / ulp;
}

template <typename F>
void ExpectAccurate(F function, double (*reference)(double), const char* name) {
  std::vector<float> x = Sweep();
  std::vector<float> y(x.size());
  OnBestIsa([from = x.data(), to = y.data(), n = x.size(), function] {
    for (size_t i = 0; i < n; ++i) to[i] = function(from[i]);
  });
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double error = UlpError(y[i], reference(x[i]));
    if (error > worst) {
      worst = error;
      at = x[i];
    }
    if (y[i] == 0) {
      EXPECT_EQ(std::signbit(y[i]), std::signbit(reference(x[i])))
          << name << "(" << x[i] << ")";
    }
  }
  EXPECT_LE(worst, 0.52) << name << "(" << at << ")";
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST(VectorMath, HalfAnUlpOverAllExponents) {
  ExpectAccurate([](float x) { return math::Exp(x); }, &std::exp, "exp");
  ExpectAccurate([](float x) { return math::Log(x); }, &std::log, "log");
  ExpectAccurate([](float x) { return math::Tanh(x); }, &std::tanh, "tanh");
  ExpectAccurate([](float x) { return math::Erf(x); }, &std::erf, "erf");
  ExpectAccurate([](float x) { return math::Sigmoid(x); }, &Logistic,
                 "sigmoid");
}

TEST(VectorMath, FloatExpOverItsRange) {
  for (float x = -87; x <= 88; x += 0.00371f) {
    ASSERT_LE(UlpError(math::FloatExp(x), std::exp(static_cast<double>(x))), 2)
        << x;
  }
  EXPECT_EQ(math::FloatExp(0), 1);
  EXPECT_EQ(math::FloatExp(-88), 0);
  EXPECT_EQ(math::FloatExp(-kInfinity), 0);
  EXPECT_EQ(math::FloatExp(89), kInfinity);
  EXPECT_EQ(math::FloatExp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(math::FloatExp(kNaN)));
}

TEST(VectorMath, FloatNormalOverItsRange) {
  for (float x = -12.5f; x <= 12.5f; x += 0.000713f) {
    double z = static_cast<double>(x) * std::sqrt(0.5);
    double cdf = 0.5 * std::erfc(-z);
    double pdf = std::exp(-z * z) / std::sqrt(2 * std::acos(-1.0));
    math::FloatNormalValues got = math::FloatNormal(x);
    ASSERT_NEAR(got.cdf, cdf, 6e-7 * cdf) << x;
    ASSERT_NEAR(got.pdf, pdf, 6e-7 * pdf) << x;
  }
  EXPECT_EQ(math::FloatNormal(kInfinity).cdf, 1);
  EXPECT_EQ(math::FloatNormal(-kInfinity).cdf, 0);
}

TEST(VectorMath, SameBitsOnEveryIsa) {
  std::vector<float> x = Sweep();
  std::vector<float> y(x.size()), z(x.size());
  std::vector<float> exp(x.size());
  VectorExp(x.data(), exp.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(UlpError(exp[i], math::Exp(x[i])), 0);
  }
  auto run = [&](Isa isa, std::vector<float>& out) {
    const float* in = x.data();
    float* to = out.data();
    size_t n = x.size();
    OnIsa(isa, [=] {
      for (size_t i = 0; i < n; ++i) to[i] = math::Erf(in[i]);
    });
  };
  run(Isa::kPortable, y);
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!HasIsa(isa)) continue;
    run(isa, z);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(y[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(z[i]))
          << x[i];
    }
  }
}

TEST(VectorMath, MaxPropagatesNaN) {
  std::vector<float> x(100, -2.0f);
  EXPECT_EQ(VectorMax(x.data(), 0), -kInfinity);
  x[77] = 3;
  EXPECT_EQ(VectorMax(x.data(), 100), 3);
  for (size_t i : {0, 31, 99}) {
    std::vector<float> y = x;
    y[i] = kNaN;
    EXPECT_TRUE(std::isnan(VectorMax(y.data(), 100))) << i;
  }
}

TEST(VectorMath, ExpShiftedSumsWhatItWrites) {
  std::vector<float> x(1000), y(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i);
  double want = 0;
  for (float v : x) want += std::exp(static_cast<double>(v) - 9);
  double sum = VectorExpShifted(x.data(), 9.0f, y.data(), 1000);
  EXPECT_NEAR(sum, want, 1e-6 * want);
  EXPECT_EQ(sum, VectorExpShifted(x.data(), 9.0f, nullptr, 1000));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(UlpError(y[i], std::exp(static_cast<double>(x[i] - 9.0f))), 2);
  }
}

}  // namespace
}  // namespace onnx_fp8
