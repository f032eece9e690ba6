// SPDX-License-Identifier: Apache-2.0
//
// Values from attributes and shapes, and random ones.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;
using Int64s = std::vector<int64_t>;

TEST(Constant, EveryAttribute) {
  Tensor x = ConvertTo(Floats({2}, {1, 448}), DType::kE4M3);
  EXPECT_TRUE(Identical(RunNode1("Constant", {}, {{"value", x}}), x));
  EXPECT_TRUE(Identical(RunNode1("Constant", {}, {{"value_float", 2.5f}}),
                        Tensor::Scalar(2.5f)));
  EXPECT_TRUE(Identical(RunNode1("Constant", {}, {{"value_int", int64_t{-3}}}),
                        Tensor::Scalar(int64_t{-3})));
  EXPECT_TRUE(Identical(
      RunNode1("Constant", {}, {{"value_floats", std::vector<float>{1, 2}}}),
      Floats({2}, {1, 2})));
  EXPECT_TRUE(Identical(RunNode1("Constant", {}, {{"value_ints", Int64s{}}}),
                        Tensor::Ints({})));
  EXPECT_NE(ErrorOf("Constant", {}), "");
  EXPECT_NE(ErrorOf("Constant", {}, {{"value_string", std::string("a")}}), "");
}

TEST(ConstantOfShape, DefaultsToZeroFloats) {
  Tensor y = RunNode1("ConstantOfShape", {Tensor::Ints({2, 1})});
  EXPECT_TRUE(Identical(y, Floats({2, 1}, {0, 0})));
  Tensor one = Tensor::From<int8_t>({1}, std::vector<int8_t>{7});
  EXPECT_TRUE(Identical(
      RunNode1("ConstantOfShape", {Tensor::Ints({})}, {{"value", one}}),
      one.Reshaped({})));
  EXPECT_NE(ErrorOf("ConstantOfShape", {Tensor::Ints({-1})}), "");
  EXPECT_NE(ErrorOf("ConstantOfShape", {Tensor::Ints({1L << 62})}), "");
  EXPECT_NE(ErrorOf("ConstantOfShape", {Tensor::Ints({1})},
                    {{"value", Floats({2}, {1, 2})}}),
            "");
}

Tensor Range(const Tensor& start, const Tensor& limit, const Tensor& delta) {
  return RunNode1("Range", {start, limit, delta});
}

template <typename T>
Tensor Range(T start, T limit, T delta) {
  return Range(Tensor::Scalar(start), Tensor::Scalar(limit),
               Tensor::Scalar(delta));
}

TEST(Range, AllNumbers) {
  EXPECT_EQ(Doubles(Range(1.0f, 2.0f, 0.25f)), (V{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(Doubles(Range<int64_t>(5, 0, -2)), (V{5, 3, 1}));
  EXPECT_EQ(Doubles(Range<int64_t>(0, 5, -1)), V{});
  EXPECT_EQ(Doubles(Range<int64_t>(3, 3, 1)), V{});
  constexpr auto kLow = std::numeric_limits<int32_t>::min();
  constexpr auto kHigh = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Doubles(Range<int32_t>(kLow, kHigh, kHigh)),
            (V{kLow, -1, kHigh - 1.0}));
  constexpr auto kLongLow = std::numeric_limits<int64_t>::min();
  constexpr auto kLongHigh = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ToInts(Range<int64_t>(kLongHigh, kLongLow, kLongLow)),
            (Int64s{kLongHigh, -1}));
}

TEST(Range, RefusesBadOperands) {
  EXPECT_THROW(Range<int64_t>(0, 5, 0), std::exception);
  EXPECT_THROW(Range(0.0f, INFINITY, 1.0f), std::exception);
  EXPECT_THROW(Range(0.0f, std::nanf(""), 1.0f), std::exception);
  EXPECT_THROW(Range<int64_t>(0, std::numeric_limits<int64_t>::max(), 1),
               std::exception);
  Tensor one = Tensor::Scalar(1.0f), two = Tensor::Ints({1, 2});
  EXPECT_NE(ErrorOf("Range", {one, Tensor::Scalar(int64_t{3}), one}), "");
  EXPECT_NE(ErrorOf("Range", {two, two, two}), "");
  EXPECT_NE(ErrorOf("Range", {one, one}), "");
}

TEST(EyeLike, DiagonalsThatLieOutside) {
  auto eye = [](int64_t k) {
    return Doubles(RunNode1("EyeLike", {Count({2, 3})}, {{"k", k}}));
  };
  EXPECT_EQ(eye(1), (V{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(eye(-1), (V{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(std::numeric_limits<int64_t>::max()), V(6, 0));
  EXPECT_EQ(eye(std::numeric_limits<int64_t>::min()), V(6, 0));
  EXPECT_NE(ErrorOf("EyeLike", {Count({2})}), "");
  EXPECT_NE(ErrorOf("EyeLike", {Count({2, 2})}, {{"dtype", int64_t{8}}}), "");
}

struct Statistics {
  double mean = 0, variance = 0, lowest = 0, highest = 0;
};

Statistics StatisticsOf(const Tensor& x) {
  Statistics m;
  m.lowest = m.highest = DoubleAt(x, 0);
  for (double value : Doubles(x)) {
    m.mean += value / static_cast<double>(x.size());
    m.lowest = std::min(m.lowest, value);
    m.highest = std::max(m.highest, value);
  }
  for (double value : Doubles(x)) {
    m.variance +=
        (value - m.mean) * (value - m.mean) / static_cast<double>(x.size());
  }
  return m;
}

// With n = 100,000 the standard error of a mean is 0.0032 deviations.
const Int64s kShape = {100, 1000};

TEST(Random, Moments) {
  Statistics u = StatisticsOf(RunNode1(
      "RandomUniform", {},
      {{"shape", kShape}, {"seed", 1.0f}, {"low", -1.0f}, {"high", 3.0f}}));
  EXPECT_NEAR(u.mean, 1, 0.02);
  EXPECT_NEAR(u.variance, 16.0 / 12, 0.02);
  EXPECT_GE(u.lowest, -1);
  EXPECT_LE(u.highest, 3);
  Statistics n = StatisticsOf(RunNode1(
      "RandomNormal", {},
      {{"shape", kShape}, {"seed", 2.0f}, {"mean", 5.0f}, {"scale", 2.0f}}));
  EXPECT_NEAR(n.mean, 5, 0.03);
  EXPECT_NEAR(n.variance, 4, 0.1);
  EXPECT_GT(n.highest, 5 + 2 * 3);
  EXPECT_LT(n.highest, 5 + 2 * 6);
}

// Neighbors share no uniform numbers: their squares do not correlate.
TEST(Random, NormalsAreIndependent) {
  Tensor x = RunNode1("RandomNormal", {}, {{"shape", kShape}, {"seed", 6.0f}});
  double covariance = 0;
  for (int64_t i = 0; i + 1 < x.size(); ++i) {
    double a = DoubleAt(x, i), b = DoubleAt(x, i + 1);
    covariance += (a * a - 1) * (b * b - 1) / static_cast<double>(x.size());
  }
  // Variance of a square: 2. Standard error: 0.0063.
  EXPECT_NEAR(covariance, 0, 0.03);
}

TEST(Random, SeedsAndThreads) {
  int threads = NumThreads();
  Attributes attributes = {{"shape", kShape}, {"seed", 3.0f}};
  SetNumThreads(1);
  Tensor one = RunNode1("RandomNormal", {}, attributes);
  SetNumThreads(3);
  EXPECT_TRUE(Identical(RunNode1("RandomNormal", {}, attributes), one));
  SetNumThreads(threads);
  attributes["seed"] = 4.0f;
  EXPECT_FALSE(Identical(RunNode1("RandomNormal", {}, attributes), one));
  EXPECT_NE(ErrorOf("RandomNormal", {}), "");
  EXPECT_NE(ErrorOf("RandomNormal", {}, {{"shape", Int64s{-1}}}), "");
}

// A node's draws depend on the run's draw number and, without a seed, on the
// node's name; a repeated run draws the same numbers.
TEST(Random, DrawsAndNames) {
  Graph graph;
  auto values = [&](Node* node, uint64_t draw) {
    std::vector<Tensor> y(1);
    KernelContext context(*node, {}, y, draw);
    CpuKernels().Find("", node->op)->kernel(context);
    return y[0];
  };
  Attributes attributes = {{"shape", kShape}};
  Node* a = graph.AddNode("RandomUniform", {}, {"a"}, attributes);
  Node* b = graph.AddNode("RandomUniform", {}, {"b"}, attributes);
  attributes["seed"] = 3.0f;
  Node* c = graph.AddNode("RandomUniform", {}, {"c"}, attributes);
  EXPECT_TRUE(Identical(values(a, 1), values(a, 1)));
  EXPECT_FALSE(Identical(values(a, 1), values(a, 2)));
  EXPECT_FALSE(Identical(values(a, 1), values(b, 1)));
  EXPECT_FALSE(Identical(values(c, 1), values(c, 2)));
}

TEST(Random, LikeTakesShapeAndDType) {
  Tensor x = Tensor::Zeros(DType::kDouble, {3, 0});
  Tensor y = RunNode1("RandomUniformLike", {x});
  EXPECT_EQ(y.dtype(), DType::kDouble);
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(RunNode1("RandomNormalLike", {x}, {{"dtype", int64_t{16}}}).dtype(),
            DType::kBFloat16);
  Tensor p = Floats({1, 1}, {0.25f});
  p = RunNode1("Expand", {p, Tensor::Ints(kShape)});
  Statistics m = StatisticsOf(RunNode1("Bernoulli", {p}, {{"seed", 5.0f}}));
  EXPECT_NEAR(m.mean, 0.25, 0.006);
  EXPECT_EQ(m.lowest, 0);
  EXPECT_EQ(m.highest, 1);
  EXPECT_EQ(Doubles(RunNode1("Bernoulli", {Floats({2}, {0, 1})})), (V{0, 1}));
}

}  // namespace
}  // namespace onnx_fp8
