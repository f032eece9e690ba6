// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

// The operands of one result, in order, are reduced in double.
double ReduceOperands(const std::string& op, const std::vector<double>& x) {
  double sum = 0, abs = 0, square = 0, product = 1, exp = 0;
  double largest = -kInfinity, least = kInfinity;
  for (double v : x) {
    sum += v;
    abs += std::fabs(v);
    square += v * v;
    product *= v;
    exp += std::exp(v);
    largest = std::fmax(largest, v);
    least = std::fmin(least, v);
  }
  const std::map<std::string, double> results = {
      {"Sum", sum},
      {"Mean", sum / static_cast<double>(x.size())},
      {"Max", largest},
      {"Min", least},
      {"Prod", product},
      {"L1", abs},
      {"L2", std::sqrt(square)},
      {"LogSum", std::log(sum)},
      {"LogSumExp", std::log(exp)},
      {"SumSquare", square}};
  return results.at(op);
}

// Result by result, by walking over all of x.
Tensor NaiveReduce(const std::string& op, const Tensor& x,
                   const std::vector<bool>& reduce) {
  Shape kept;
  for (size_t a = 0; a < reduce.size(); ++a) {
    if (!reduce[a]) kept.push_back(x.shape()[a]);
  }
  Tensor y = Tensor::Allocate(DType::kDouble, kept);
  std::vector<std::vector<double>> operands(static_cast<size_t>(y.size()));
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, at = 0, scale = 1;
    for (size_t a = reduce.size(); a-- > 0;) {
      if (!reduce[a]) {
        at += rest % x.shape()[a] * scale;
        scale *= x.shape()[a];
      }
      rest /= x.shape()[a];
    }
    operands[static_cast<size_t>(at)].push_back(DoubleAt(x, i));
  }
  for (int64_t i = 0; i < y.size(); ++i) {
    y.data<double>()[i] = ReduceOperands(op, operands[static_cast<size_t>(i)]);
  }
  return y;
}

const char* const kReductions[] = {"Sum",       "Mean",     "Max",  "Min",
                                   "L1",        "L2",       "Prod", "LogSum",
                                   "LogSumExp", "SumSquare"};

TEST(Reduce, AllOpsOverAllSetsOfAxes) {
  const Shape shapes[] = {{3, 4, 5, 2}, {2, 1, 300, 3}, {600, 7}, {2, 40, 33}};
  for (const Shape& shape : shapes) {
    Tensor x = RandomNormal(shape, 3);
    // Around 1, so that products and logarithms are finite.
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = 1.0f + 0.01f * x.data<float>()[i];
    }
    Tensor d = ConvertTo(x, DType::kDouble);
    for (size_t set = 1; set < size_t{1} << shape.size(); ++set) {
      std::vector<bool> reduce;
      std::vector<int64_t> axes;
      for (size_t a = 0; a < shape.size(); ++a) {
        reduce.push_back((set >> a) & 1);
        if (reduce[a]) {
          axes.push_back(static_cast<int64_t>(a) -
                         static_cast<int64_t>(set % 2 ? shape.size() : 0));
        }
      }
      for (const char* op : kReductions) {
        Tensor want = NaiveReduce(op, x, reduce);
        Attributes flat = {{"keepdims", int64_t{0}}};
        std::string name = std::string("Reduce") + op;
        Tensor y = RunNode(name, {x, Tensor::Ints(axes)}, flat)[0];
        Tensor z = RunNode(name, {d, Tensor::Ints(axes)}, flat)[0];
        ASSERT_EQ(y.shape(), want.shape());
        for (int64_t i = 0; i < want.size(); ++i) {
          double v = DoubleAt(want, i);
          double scale = std::fabs(v) + 0.01;
          ASSERT_NEAR(DoubleAt(y, i), v, 2e-7 * scale) << name << set;
          ASSERT_NEAR(DoubleAt(z, i), v, 1e-13 * scale) << name << set;
        }
      }
    }
  }
}

TEST(Reduce, AxesAndKeepdims) {
  Tensor x = RandomNormal({2, 3, 4}, 1);
  EXPECT_EQ(RunNode("ReduceSum", {x})[0].shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(RunNode("ReduceSum", {x, Tensor::Ints({1})})[0].shape(),
            (Shape{2, 1, 4}));
  EXPECT_EQ(RunNode("ReduceSum", {x, Tensor::Ints({})})[0].shape(),
            (Shape{1, 1, 1}));
  Attributes noop = {{"noop_with_empty_axes", int64_t{1}}};
  EXPECT_TRUE(Identical(RunNode("ReduceSum", {x}, noop)[0], x));
  EXPECT_TRUE(Identical(RunNode("ReduceSumSquare", {x}, noop)[0],
                        RunNode("Mul", {x, x})[0]));
  Tensor scalar = RunNode("ReduceMax", {Tensor::Scalar(3.0f)})[0];
  EXPECT_TRUE(Identical(scalar, Tensor::Scalar(3.0f)));
  EXPECT_THROW(RunNode("ReduceSum", {x, Tensor::Ints({3})}), Error);
  EXPECT_THROW(RunNode("ReduceSum", {Tensor::Zeros(DType::kBool, {2})}), Error);
}

TEST(Reduce, EmptySets) {
  Tensor x = Tensor::Zeros(DType::kFloat, {2, 0, 3});
  auto first = [&](const char* op) {
    Tensor y = RunNode(op, {x, Tensor::Ints({1})})[0];
    EXPECT_EQ(y.shape(), (Shape{2, 1, 3}));
    return DoubleAt(y, 5);
  };
  EXPECT_EQ(first("ReduceSum"), 0);
  EXPECT_EQ(first("ReduceProd"), 1);
  EXPECT_EQ(first("ReduceMax"), -kInfinity);
  EXPECT_EQ(first("ReduceMin"), kInfinity);
  EXPECT_EQ(first("ReduceLogSum"), -kInfinity);
  EXPECT_EQ(first("ReduceLogSumExp"), -kInfinity);
  EXPECT_TRUE(std::isnan(first("ReduceMean")));
  EXPECT_EQ(RunNode("ReduceSum", {x, Tensor::Ints({0})})[0].shape(),
            (Shape{1, 0, 3}));
  Tensor i = Tensor::Zeros(DType::kInt32, {0});
  EXPECT_EQ(IntAt(RunNode("ReduceMax", {i})[0], 0),
            std::numeric_limits<int32_t>::min());
  EXPECT_THROW(RunNode("ReduceMean", {i}), Error);
}

TEST(Reduce, IntegersAndBools) {
  Tensor x = Vector<int32_t>({-7, 3, 2147483647, 2});
  auto of = [&](const char* op) { return IntAt(RunNode(op, {x})[0], 0); };
  EXPECT_EQ(of("ReduceSum"), -2147483651ll + (1ll << 32));
  EXPECT_EQ(of("ReduceL1"), 2147483659ll - (1ll << 32));
  EXPECT_EQ(of("ReduceMean"), 2147483645 / 4);
  EXPECT_EQ(of("ReduceMin"), -7);
  EXPECT_EQ(of("ReduceL2"), 2147483647);
  EXPECT_EQ(of("ReduceLogSumExp"), 2147483647);
  Tensor big = Vector<int64_t>({(1ll << 60) + 1, 1ll << 60});
  EXPECT_EQ(IntAt(RunNode("ReduceSum", {big})[0], 0), (1ll << 61) + 1);
  EXPECT_EQ(IntAt(RunNode("ReduceMean", {Vector<int64_t>({-3, -4})})[0], 0),
            -3);
  Tensor b =
      ConvertTo(Vector<int32_t>({0, 1, 0, 0}), DType::kBool).Reshaped({2, 2});
  Tensor rows = Tensor::Ints({1});
  EXPECT_EQ(ToInts(RunNode("ReduceMax", {b, rows})[0]),
            (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(ToInts(RunNode("ReduceMin", {b})[0]), (std::vector<int64_t>{0}));
}

TEST(Reduce, LongSumsAreAccurateAndNaNAndInfinitySurvive) {
  Tensor x = Tensor::Allocate(DType::kFloat, {1, 3000000});
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = 0.1f;
  double want = 3e6 * static_cast<double>(0.1f);
  EXPECT_EQ(DoubleAt(RunNode("ReduceSum", {x})[0], 0),
            static_cast<float>(want));
  Tensor columns = x.Reshaped({3000000, 1});
  EXPECT_EQ(DoubleAt(RunNode("ReduceSum", {columns, Tensor::Ints({0})})[0], 0),
            static_cast<float>(want));
  x.data<float>()[1234567] = kInfinity;
  EXPECT_EQ(DoubleAt(RunNode("ReduceLogSumExp", {x})[0], 0), kInfinity);
  x.data<float>()[2345678] = std::numeric_limits<float>::quiet_NaN();
  for (const char* op :
       {"ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"}) {
    EXPECT_TRUE(std::isnan(DoubleAt(RunNode(op, {x})[0], 0))) << op;
  }
  Tensor low = Vector<float>({-200, -200});
  EXPECT_NEAR(DoubleAt(RunNode("ReduceLogSumExp", {low})[0], 0),
              -200 + std::log(2.0), 1e-5);
}

TEST(Reduce, SameBitsOnAnyNumberOfThreads) {
  int threads = NumThreads();
  Tensor x = RandomNormal({700, 1000}, 5);
  for (const std::vector<int64_t>& axes :
       {std::vector<int64_t>{0}, {1}, {0, 1}}) {
    SetNumThreads(1);
    Tensor one = RunNode("ReduceSum", {x, Tensor::Ints(axes)})[0];
    SetNumThreads(3);
    Tensor three = RunNode("ReduceSum", {x, Tensor::Ints(axes)})[0];
    EXPECT_TRUE(Identical(one, three));
  }
  SetNumThreads(threads);
}

}  // namespace
}  // namespace onnx_fp8
