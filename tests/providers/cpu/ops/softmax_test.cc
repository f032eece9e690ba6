// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/check.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using Row = std::vector<double>;

// y = f(slices of the operands) for every slice along the axis.
Tensor AlongAxis(const std::vector<Tensor>& x, int64_t axis,
                 const std::function<Row(const std::vector<Row>&)>& f) {
  const Shape& shape = x[0].shape();
  Tensor y = Tensor::Allocate(DType::kDouble, shape);
  std::vector<int64_t> strides = Strides(shape);
  auto a = static_cast<size_t>(axis);
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i / strides[a] % shape[a] != 0) continue;  // the first of its slice
    std::vector<Row> rows(x.size());
    for (size_t k = 0; k < x.size(); ++k) {
      for (int64_t j = 0; j < shape[a]; ++j) {
        rows[k].push_back(DoubleAt(x[k], i + j * strides[a]));
      }
    }
    Row result = f(rows);
    for (int64_t j = 0; j < shape[a]; ++j) {
      y.data<double>()[i + j * strides[a]] = result[static_cast<size_t>(j)];
    }
  }
  return y;
}

Row Softmax(const std::vector<Row>& x) {
  double sum = 0;
  for (double v : x[0]) sum += std::exp(v);
  Row y;
  for (double v : x[0]) y.push_back(std::exp(v) / sum);
  return y;
}

Row LogSoftmax(const std::vector<Row>& x) {
  Row y = Softmax(x);
  for (double& v : y) v = std::log(v);
  return y;
}

Row SoftmaxGrad(const std::vector<Row>& x) {
  double dot = 0;
  for (size_t i = 0; i < x[0].size(); ++i) dot += x[0][i] * x[1][i];
  Row dx;
  for (size_t i = 0; i < x[0].size(); ++i) {
    dx.push_back(x[1][i] * (x[0][i] - dot));
  }
  return dx;
}

TEST(Softmax, EveryAxis) {
  for (const Shape& shape : {Shape{3, 4, 50}, Shape{2, 300}, Shape{7, 1}}) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
      Tensor x = RandomNormal(shape, 1);
      Tensor dy = RandomNormal(shape, 2);
      Attributes at = {{"axis", axis}};
      Tensor y = AlongAxis({x}, axis, Softmax);
      Tensor log = AlongAxis({x}, axis, LogSoftmax);
      Tensor f = ConvertTo(y, DType::kFloat);
      Tensor dx = AlongAxis({dy, f}, axis, SoftmaxGrad);
      EXPECT_LE(LargestDifference(RunNode("Softmax", {x}, at)[0], y), 2e-7);
      EXPECT_LE(LargestDifference(RunNode("LogSoftmax", {x}, at)[0], log),
                2e-6);
      EXPECT_LE(LargestDifference(
                    RunNode("SoftmaxGrad", {dy, f}, at, 1, kDomain)[0], dx),
                5e-7);
      Tensor d = ConvertTo(x, DType::kDouble);
      Tensor dyd = ConvertTo(dy, DType::kDouble);
      EXPECT_LE(LargestDifference(RunNode("Softmax", {d}, at)[0], y), 1e-15);
      EXPECT_LE(LargestDifference(RunNode("LogSoftmax", {d}, at)[0], log),
                1e-14);
      EXPECT_LE(
          LargestDifference(RunNode("SoftmaxGrad", {dyd, y}, at, 1, kDomain)[0],
                            AlongAxis({dyd, y}, axis, SoftmaxGrad)),
          1e-15);
    }
  }
}

TEST(Softmax, LargeAndMaskedLogits) {
  const float low = -std::numeric_limits<float>::infinity();
  Tensor x = Tensor::From<float>({3}, std::vector<float>{1000, low, 1000});
  EXPECT_TRUE(
      Identical(RunNode("Softmax", {x})[0],
                Tensor::From<float>({3}, std::vector<float>{0.5f, 0, 0.5f})));
  Tensor log = RunNode("LogSoftmax", {x})[0];
  EXPECT_NEAR(DoubleAt(log, 0), -std::log(2.0), 1e-7);
  EXPECT_EQ(DoubleAt(log, 1), low);
}

TEST(Softmax, DefaultsToTheLastAxis) {
  Tensor x = RandomNormal({4, 6}, 1);
  EXPECT_TRUE(Identical(RunNode("Softmax", {x})[0],
                        RunNode("Softmax", {x}, {{"axis", int64_t{1}}})[0]));
  EXPECT_EQ(DoubleAt(RunNode("Softmax", {Tensor::Scalar(3.0f)})[0], 0), 1);
  EXPECT_EQ(RunNode("Softmax", {RandomNormal({0, 3}, 1)})[0].shape(),
            (Shape{0, 3}));
  EXPECT_EQ(RunNode("Softmax", {RandomNormal({3, 0}, 1)})[0].shape(),
            (Shape{3, 0}));
  EXPECT_THROW(RunNode("Softmax", {x}, {{"axis", int64_t{2}}}), Error);
  EXPECT_THROW(
      RunNode("SoftmaxGrad", {x, RandomNormal({6, 4}, 1)}, {}, 1, kDomain),
      Error);
}

TEST(Hardmax, MarksTheFirstLargest) {
  Tensor x = Tensor::From<float>({2, 3}, std::vector<float>{1, 3, 3, 2, 0, 1});
  EXPECT_TRUE(Identical(
      RunNode("Hardmax", {x})[0],
      Tensor::From<float>({2, 3}, std::vector<float>{0, 1, 0, 1, 0, 0})));
  EXPECT_TRUE(Identical(
      RunNode("Hardmax", {x}, {{"axis", int64_t{0}}})[0],
      Tensor::From<float>({2, 3}, std::vector<float>{0, 1, 1, 1, 0, 0})));
}

}  // namespace
}  // namespace onnx_fp8
