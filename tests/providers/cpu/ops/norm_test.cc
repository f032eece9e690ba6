// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// Rows of n elements: the definitions, straight from the formulas.
struct Normalized {
  Tensor y, mean, inv_std;
};
Normalized LayerNorm(const Tensor& x, int64_t n, const Tensor& scale,
                     const Tensor& bias, double epsilon, bool centered) {
  int64_t rows = x.size() / n;
  Normalized r{x.Clone(), Tensor::Allocate(DType::kDouble, {rows}),
               Tensor::Allocate(DType::kDouble, {rows})};
  for (int64_t row = 0; row < rows; ++row) {
    const double* in = x.data<double>() + row * n;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n && centered; ++i) {
      mean += in[i] / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(n);
    }
    double inv_std = 1 / std::sqrt(variance + epsilon);
    r.mean.data<double>()[row] = mean;
    r.inv_std.data<double>()[row] = inv_std;
    for (int64_t i = 0; i < n; ++i) {
      r.y.data<double>()[row * n + i] =
          (in[i] - mean) * inv_std * DoubleAt(scale, i) +
          (bias.defined() ? DoubleAt(bias, i) : 0);
    }
  }
  return r;
}

constexpr float kEpsilon = 1e-3f;

TEST(LayerNorm, MatchesTheFormula) {
  Tensor x = RandomShifted({70, 3, 50}, 1);
  for (int64_t axis : {-1, 1}) {
    Shape tail = axis == 1 ? Shape{3, 50} : Shape{50};
    int64_t n = NumElements(tail);
    Tensor scale = RandomShifted(tail, 2), bias = RandomShifted(tail, 3);
    Attributes at = {{"axis", axis},
                     {"epsilon", kEpsilon},
                     {"stash_type", static_cast<int64_t>(DType::kDouble)}};
    Normalized want = LayerNorm(x, n, scale, bias, kEpsilon, true);
    auto y = RunNode("LayerNormalization", {x, scale, bias}, at, 3);
    EXPECT_LE(LargestDifference(y[0], want.y), 1e-13);
    Shape statistics = axis == 1 ? Shape{70, 1, 1} : Shape{70, 3, 1};
    EXPECT_EQ(y[1].dtype(), DType::kDouble);
    EXPECT_EQ(y[1].shape(), statistics);
    EXPECT_LE(LargestDifference(y[1], want.mean.Reshaped(statistics)), 1e-14);
    EXPECT_LE(LargestDifference(y[2], want.inv_std.Reshaped(statistics)),
              1e-14);
    auto f =
        RunNode("LayerNormalization",
                {ConvertTo(x, DType::kFloat), ConvertTo(scale, DType::kFloat),
                 ConvertTo(bias, DType::kFloat)},
                {{"axis", axis}, {"epsilon", kEpsilon}}, 3);
    EXPECT_EQ(f[2].dtype(), DType::kFloat);
    EXPECT_LE(LargestDifference(f[0], want.y), 1e-5);
    EXPECT_LE(LargestDifference(f[2], want.inv_std.Reshaped(statistics)), 1e-6);

    Normalized rms = LayerNorm(x, n, scale, Tensor(), kEpsilon, false);
    auto z = RunNode("RMSNormalization", {x, scale}, at, 1);
    EXPECT_LE(LargestDifference(z[0], rms.y), 1e-13);
  }
}

TEST(LayerNorm, ScaleBroadcasts) {
  Tensor x = RandomShifted({4, 2, 6}, 1);
  Tensor one = Tensor::Scalar(2.0);
  Tensor full = Tensor::From<double>({6}, std::vector<double>(6, 2.0));
  auto run = [&](const Tensor& scale) {
    return RunNode("LayerNormalization", {x, scale})[0];
  };
  EXPECT_TRUE(Identical(run(one), run(full)));
  EXPECT_TRUE(Identical(run(full.Reshaped({1, 1, 6})), run(full)));
  // One scale per element of x: row by row.
  Tensor lead = RandomShifted({4, 1, 1}, 2);
  Tensor y = run(lead), z = run(Tensor::Scalar(1.0));
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(DoubleAt(y, i), DoubleAt(z, i) * DoubleAt(lead, i / 12), 1e-14);
  }
  // A scale and a bias of x's own shape.
  Tensor scale = RandomShifted({4, 2, 6}, 3),
         bias = RandomShifted({4, 2, 6}, 4);
  Tensor both = RunNode("LayerNormalization", {x, scale, bias})[0];
  Tensor rms = RunNode("RMSNormalization", {x, scale})[0];
  Tensor plain = RunNode("RMSNormalization", {x, Tensor::Scalar(1.0)})[0];
  for (int64_t i = 0; i < x.size(); ++i) {
    double h = DoubleAt(z, i) * DoubleAt(scale, i);
    ASSERT_NEAR(DoubleAt(both, i), h + DoubleAt(bias, i), 1e-14);
    ASSERT_NEAR(DoubleAt(rms, i), DoubleAt(plain, i) * DoubleAt(scale, i),
                1e-14);
  }
  EXPECT_THROW(run(RandomShifted({5}, 1)), Error);
  EXPECT_THROW(run(RandomShifted({2, 4, 2, 6}, 1)), Error);
  EXPECT_THROW(run(Tensor::Scalar(1.0f)), Error);
  EXPECT_THROW(RunNode("LayerNormalization", {x, one}, {{"axis", int64_t{3}}}),
               Error);
  EXPECT_EQ(
      RunNode("LayerNormalization", {RandomShifted({0, 3}, 1), one})[0].size(),
      0);
  EXPECT_EQ(
      RunNode("LayerNormalization", {RandomShifted({3, 0}, 1), one})[0].size(),
      0);
}

// d loss / d(element i of t) by five-point differences. Errors are of order
// h^4, and 1e-16 / h of the loss, which is a sum up to 1e4.
template <typename Loss>
void ExpectGradient(Tensor t, const Tensor& gradient, Loss loss) {
  ASSERT_EQ(t.shape(), gradient.shape());
  const double h = 1e-3;
  for (int64_t i = 0; i < t.size(); ++i) {
    double& v = t.data<double>()[i];
    double old = v;
    auto at = [&](double step) {
      v = old + step;
      double value = loss();
      v = old;
      return value;
    };
    double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    ASSERT_NEAR(DoubleAt(gradient, i), slope, 1e-7) << i;
  }
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += DoubleAt(a, i) * DoubleAt(b, i);
  return sum;
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  // More rows than one partial sum covers.
  for (const Shape& tail : {Shape{5}, Shape{2, 3}}) {
    Shape shape = {67};
    shape.insert(shape.end(), tail.begin(), tail.end());
    Tensor x = RandomShifted(shape, 1), dy = RandomShifted(shape, 2);
    Tensor scale = RandomShifted(tail, 3), bias = RandomShifted(tail, 4);
    int64_t n = scale.size();
    Attributes at = {{"axis", int64_t{1}}, {"epsilon", kEpsilon}};
    for (bool centered : {true, false}) {
      auto loss = [&] {
        return Dot(dy, LayerNorm(x, n, scale, bias, kEpsilon, centered).y);
      };
      std::vector<Tensor> d;
      if (centered) {
        Normalized r = LayerNorm(x, n, scale, bias, kEpsilon, true);
        Shape statistics(shape.size(), 1);
        statistics[0] = 67;
        d = RunNode("LayerNormGrad",
                    {dy, x, scale, r.mean.Reshaped(statistics),
                     r.inv_std.Reshaped(statistics)},
                    at, 3, kDomain);
        ExpectGradient(bias, d[2], loss);
      } else {
        d = RunNode("RMSNormGrad", {dy, x, scale}, at, 2, kDomain);
      }
      ExpectGradient(x, d[0], loss);
      ExpectGradient(scale, d[1], loss);
    }
  }
}

TEST(LayerNorm, GradientsInFloatAndOnManyThreads) {
  Tensor x = RandomShifted({300, 40}, 1), dy = RandomShifted({300, 40}, 2);
  Tensor scale = RandomShifted({40}, 3);
  Normalized r = LayerNorm(x, 40, scale, Tensor(), 1e-5, true);
  std::vector<Tensor> inputs = {dy, x, scale, r.mean.Reshaped({300, 1}),
                                r.inv_std.Reshaped({300, 1})};
  auto exact =
      RunNode("LayerNormGrad", inputs, {{"axis", int64_t{-1}}}, 3, kDomain);
  for (Tensor& t : inputs) t = ConvertTo(t, DType::kFloat);
  int threads = NumThreads();
  std::vector<Tensor> results[2];
  for (int run : {0, 1}) {
    SetNumThreads(run == 0 ? 1 : 3);
    results[run] =
        RunNode("LayerNormGrad", inputs, {{"axis", int64_t{-1}}}, 3, kDomain);
  }
  SetNumThreads(threads);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(Identical(results[0][i], results[1][i]));
    // Sums over 300 rows of numbers up to 30, inputs rounded to float.
    EXPECT_LE(LargestDifference(results[0][i], exact[i]), i == 0 ? 2e-5 : 2e-3);
  }
  EXPECT_THROW(RunNode("LayerNormGrad",
                       {inputs[0], inputs[1], inputs[2],
                        inputs[3].Reshaped({300}), inputs[4]},
                       {{"axis", int64_t{-1}}}, 3, kDomain),
               Error);
  EXPECT_THROW(RunNode("RMSNormGrad", {inputs[0], inputs[1], inputs[3]},
                       {{"axis", int64_t{-1}}}, 2, kDomain),
               Error);
}

}  // namespace
}  // namespace onnx_fp8
